#!/bin/sh
# Measure a machine with an NVIDIA GPU: what a round consists of, cohorts of any size, pfl-research's CIFAR10-IID job, rounds
# of FedAU's Table 1, five seeds in lock-step, how often the host waits, W1 to W4 with and without CUDA graphs, TF32 and
# bfloat16, beside JAX where it is installed, two processes, and at last the tests.
# Writes benchmarks/gpu.json and the section of docs/performance.md that shows it.
#
#     sh scripts/gpu.sh                                      # five to ten minutes, in an environment that has '.[dev]'
#     sh scripts/gpu.sh --only-figures                       # without the tests
#     sh scripts/gpu.sh --call causes --out causes.json      # in nine minutes: plans, the LSTM, tests, costs of operations, kernels
#     sh scripts/gpu.sh --call figures --out figures.json    # in four minutes: the figures with goals, beside JAX
#     sh scripts/gpu.sh --device cpu --quick --out gpu.json  # tiny sizes on a processor, to see that the script ends
set -eu

cd "$(dirname "$0")/.."
PYTHONPATH="src:$PWD${PYTHONPATH:+:$PYTHONPATH}" exec "${PYTHON:-python3}" benchmarks/gpu.py "$@"
