#!/bin/sh
# Measure a machine with an NVIDIA GPU: tests, W1 to W4, CUDA graphs, bfloat16, pfl-research's CIFAR10-IID job, two processes,
# and how often the host waits. Writes benchmarks/gpu.json and the section of docs/performance.md that shows it.
#
#     sh scripts/gpu.sh                                      # hours of nothing else, in an environment that has turnout[test]
#     sh scripts/gpu.sh --device cpu --quick --out gpu.json  # tiny sizes on a processor, to see that the script ends
set -eu

cd "$(dirname "$0")/.."
PYTHONPATH="src:$PWD" exec "${PYTHON:-python3}" benchmarks/gpu.py "$@"
