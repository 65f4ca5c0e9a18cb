"""Compare rounds with data in memory and with data mapped from files, and measure the memory of each client.

    python -m benchmarks.mapped
    python -m benchmarks.mapped --clients 350000 --turns 5

The second figure is for a federation of StackOverflow's shape: texts of 20 tokens, 350,000 clients.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import turnout as to
from turnout.cli.settings import Settings
from turnout.simulation.simulation import Simulation
from turnout.workbench.speed.workloads import WORKLOADS

ROUNDS = 6


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--clients", type=int, default=350_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        memory, mapped = speeds(Path(folder), options.turns)
    print(f"W1: {memory:.1f} client updates/s in memory, {mapped:.1f} mapped: {mapped / memory:.3f}")
    with tempfile.TemporaryDirectory() as folder:
        print(f"{options.clients:,} clients: {bytes_per_client(Path(folder), options.clients):.0f} bytes each")


def speeds(folder: Path, turns: int) -> tuple[float, float]:
    """Return the client updates per second of W1 with data in memory and mapped: medians over rounds in turns."""
    workload = WORKLOADS["W1"]
    settings, data = Settings.of({"data": {"name": "digits"}} | workload.settings | {"rounds": 10**6}), workload.data()
    to.data.store(folder, data)
    ways = [Simulation(settings.experiment(each)) for each in (data, to.data.stored(folder))]
    seconds: list[list[float]] = [[], []]
    for turn in range(turns + 1):
        for simulation, times in zip(ways, seconds, strict=True):
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                simulation.step()
                if turn:  # the first is not counted
                    times.append(time.perf_counter() - begin)
    memory, mapped = (workload.cohort_size / statistics.median(times) for times in seconds)
    return memory, mapped


def bytes_per_client(folder: Path, clients: int) -> float:
    """Return the bytes of memory that each further client adds to a run, without its text."""
    draw = np.random.default_rng(0)

    def several(number: int):
        for _ in range(number):
            yield draw.integers(0, 10_000, (4, 20), dtype=np.int32), draw.integers(0, 4, 4)

    used = []
    for number in (2_000, clients):  # the first also pays for what is loaded once
        to.data.store(folder / str(number), {"train": several(number)}, num_classes=4)
        before = resident()
        data = to.data.stored(
            folder / str(number), transforms=(to.data.WordVectors(np.zeros((10_000, 2), np.float32)),)
        )
        run = to.Experiment(data=data, model=to.models.Logistic(), algorithm=to.scaffold(cohort_size=20), rounds=3)
        simulation = Simulation(run)
        simulation.step()
        used.append(resident() - before)
    return (used[1] - used[0]) / (clients - 2_000)


def resident() -> int:
    """Return the memory of this process in bytes, without pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


if __name__ == "__main__":
    main()
