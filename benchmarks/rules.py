"""Compare the cost of a round between algorithms: the same clients, model and local steps, round by round in turns.

The workload is one of `turnout speed` with other algorithms. Personal parts are the last layer, so W2, which has only one,
leaves out FedAvg-P and similar algorithms. The first rounds, which trace steps, do not count.

    python benchmarks/rules.py                                     # W3 (an MLP), the algorithms below
    python benchmarks/rules.py W2 fedavg scaffold ditto --rounds 100
    python benchmarks/rules.py W3 "fedavg selection.cohort_size=100" "fedavg selection.cohort_size=100 aggregation=krum"
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import turnout
from common import in_turns
from turnout.cli.layers import override
from turnout.cli.settings import Settings
from turnout.simulation import Simulation
from turnout.workbench.speed.workloads import WORKLOADS

ALGORITHMS = (
    "fedavg",
    "fedau",
    "fedvarp",
    "mifa",
    "folb",
    "fedprox",
    "scaffold",
    "fedavg_p",
    "fedalt",
    "ditto",
    "maxfl",
    "fedadam",
    "fedavg also.top_k.share=0.01",
    "fedavg also.qsgd.bits=4",
    "fedavg also.power_sgd.rank=1",
    "fedavg also.sign.error_feedback=true",
    "fedavg also.bfloat16.down=true",
    "average_participating",
    "average_participating aggregation=private_sum aggregation.cohort=5",
    "average_participating aggregation=secure_sum aggregation.largest=8",
)
_FIRST = 60
"""Number of rounds that do not count."""


def main() -> None:
    """Time the algorithms, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", default="W3", choices=sorted(WORKLOADS), help="default: W3")
    parser.add_argument(
        "algorithms",
        nargs="*",
        default=ALGORITHMS,
        metavar="ALGORITHM",
        help="names in `turnout list`, with settings behind them",
    )
    parser.add_argument("--rounds", type=int, default=40, help="timed rounds of each (default: 40)")
    options = parser.parse_args()
    turnout.keep_large_buffers()
    workload, data = WORKLOADS[options.workload], WORKLOADS[options.workload].data()
    runs: dict[str, Simulation] = {}
    for name in options.algorithms:
        algorithm, *settings = name.split()
        layers = {"rounds": 10**6, "evaluate_every": 10**6}, workload.settings, {"algorithm": algorithm}
        layers += tuple(map(override, settings))
        runs[name] = Simulation(Settings.of(*layers).experiment(data))
    seconds = in_turns(runs, _FIRST, options.rounds, time.perf_counter)
    first = options.algorithms[0]
    print(
        f"| {options.workload}, {torch.get_num_threads()} threads | ms a round | ratio to {first}, median (quartiles) |"
    )
    print("|---|---:|---:|")
    for name, own in seconds.items():
        low, middle, high = statistics.quantiles((a / b for a, b in zip(own, seconds[first], strict=True)), n=4)
        print(f"| {name} | {1e3 * statistics.median(own):.1f} | {middle:.2f} ({low:.2f} to {high:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
