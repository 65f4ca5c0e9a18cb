"""Compare client updates per second of one process, several processes that share every cohort, and several threads.

Rounds take turns. The processor time of the busiest process is the time that a round would take without other work on the
machine and without waiting for other processes.

python benchmarks/processes.py                     # 1 process, 2 processes, 1 process of 2 threads
python benchmarks/processes.py cnn --ways 1 2 4 1x4 2x2 --rounds 20
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import turnout as to
from common import random_data
from turnout.base.algorithm import Algorithm
from turnout.distributed import collectives
from turnout.engine.allocator import keep_large_buffers
from turnout.simulation import Simulation


@dataclass(frozen=True)
class Workload:
    """The model, the algorithm and the size of the cohort."""

    model: to.models.ModelSpec
    shape: tuple[int, ...]
    algorithm: Algorithm
    cohort: int
    rounds: int


LOGISTIC, CNN = to.Sgd(lr=0.01, steps=20, batch_size=10), to.Sgd(lr=0.01, steps=5, batch_size=16)
WORKLOADS = {
    "logistic": Workload(to.models.Logistic(), (784,), to.fedau(LOGISTIC, also=(to.selection.Uniform(10),)), 10, 200),
    "logistic_100": Workload(
        to.models.Logistic(), (784,), to.fedau(LOGISTIC, also=(to.selection.Uniform(100),)), 100, 40
    ),
    "cnn": Workload(to.models.Cnn.cifar10(), (3, 32, 32), to.fedau(CNN, also=(to.selection.Uniform(24),)), 24, 5),
    "cnn_folb": Workload(to.models.Cnn.cifar10(), (3, 32, 32), to.folb(CNN, cohort_size=24), 24, 3),
    "cnn_scaffold": Workload(to.models.Cnn.cifar10(), (3, 32, 32), to.scaffold(CNN, cohort_size=24), 24, 4),
}


def measure(name: str, rounds: int) -> None:
    """Measure rounds of a workload in this process and those that were started with it."""
    keep_large_buffers()
    workload = WORKLOADS[name]
    with collectives.started("cpu"):
        experiment = to.Experiment(
            data=random_data(250, 60, workload.shape),
            model=workload.model,
            algorithm=workload.algorithm,
            rounds=10**6,
            evaluate_every=10**6,
        )
        simulation, seconds, busy = Simulation(experiment), [], []
        for _ in range(rounds + rounds // 2 + 1):
            begin, begun = time.perf_counter(), time.process_time()
            simulation.round()
            seconds.append(time.perf_counter() - begin)
            busy.append(time.process_time() - begun)
    print(json.dumps([statistics.median(seconds[-rounds:]), statistics.median(busy[-rounds:])]), flush=True)


def run(name: str, way: str, rounds: int) -> tuple[float, float]:
    """Return the median seconds of a round: wall-clock time, and processor time per thread of the busiest process."""
    number, threads = (*map(int, way.split("x")), 1)[:2]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = os.environ | {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, name, "--rounds", str(rounds), "--here"]
    started = [
        subprocess.Popen(command, env=common | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(number)
    ]
    told = [process.communicate()[0] for process in started]
    seconds, busy = zip(*map(json.loads, told), strict=True)
    return max(seconds), max(busy) / threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help="which (default: all)")
    parser.add_argument("--ways", nargs="+", default=["1", "2", "1x2"], help="processes, or PROCESSESxTHREADS")
    parser.add_argument("--rounds", type=int, help="timed rounds of each turn (default: a few seconds' worth)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--here", action="store_true", help="measure one in this very process")
    options = parser.parse_args()
    for name in options.workloads:
        rounds = options.rounds or WORKLOADS[name].rounds
        if options.here:
            measure(name, rounds)
            continue
        turns = [{way: run(name, way, rounds) for way in options.ways} for _ in range(options.turns)]
        found: dict[str, object] = {"workload": name}
        for i, clock in enumerate(("wall", "processor")):
            rates = {n: [WORKLOADS[name].cohort / turn[n][i] for turn in turns] for n in options.ways}
            found[f"{clock}_updates_per_second"] = {n: round(statistics.median(each), 1) for n, each in rates.items()}
            first = rates[options.ways[0]]
            found[f"{clock}_ratios"] = {
                n: [round(rate / one, 2) for rate, one in zip(rates[n], first, strict=True)] for n in options.ways[1:]
            }
        print(json.dumps(found | {"load": os.getloadavg()[0]}), flush=True)


if __name__ == "__main__":
    main()
