"""Measure round time and memory by the number of clients N, for cohorts of 100 available clients.

Every client has two examples of 16 numbers, so that ten million clients fit. A round trains 100 clients for 5 steps: FedAU's
weights with Markovian participation that depends on labels or, with ``--asynchronous``, FedStaleWeight's weights in a buffer
of 100 reports, with 1,000 clients at work. Federations of different sizes take turns round by round, so that a change of the
machine's speed affects all of them. Ratios are of processor time on one thread, which hardly depends on other work on the
machine. Memory is measured first, for each federation in its own process: without the examples, its peak while it is made
and through ten rounds, and what remains afterwards.

    python benchmarks/population.py
    python benchmarks/population.py 1000 1000000 --rounds 500 --asynchronous
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch

import turnout as to
from common import in_turns
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.population import Speed, delay
from turnout.simulation import Simulation

NUMBERS = 16
"""Number of inputs of an example."""


def examples(num_clients: int) -> Shards:
    """Return two examples for each client."""
    generator = torch.Generator().manual_seed(0)
    x = torch.empty(2 * num_clients, NUMBERS).normal_(generator=generator)
    y = torch.randint(10, (2 * num_clients,), generator=generator)
    return Shards(x, y, 2 * np.arange(num_clients + 1))


def federation(shards: Shards, asynchronous: bool) -> Simulation:
    """Return a federation of the clients with these examples."""
    local = to.Sgd(lr=0.01, steps=5, batch_size=16)
    if asynchronous:
        speed = Speed(delay.Uniform(0.5, 1.5), per="task", spread=1.0)
        options = {
            "algorithm": to.fedstaleweight(local),
            "pace": to.pace.Buffered(buffer_size=100, concurrency=1000, reselect=True),
            "population": to.Population(speed=speed),
        }
    else:
        options = {
            "algorithm": to.fedau(local, also=(to.selection.Uniform(100),)),
            "population": to.Population(to.availability.Markov(mean=0.1, correlated_with_labels=0.1)),
        }
    data = FederatedData("random", shards, 10)
    return Simulation(to.Experiment(data, to.models.Mlp(hidden=(64,)), **options, rounds=10**6, evaluate_every=10**6))


def memory(num_clients: int, asynchronous: bool) -> tuple[int, int]:
    """Return the bytes of a federation without its examples: at its peak, and after ten rounds."""
    small = federation(examples(1000), asynchronous)  # which loads all the code, and that of tracing
    for _ in range(100):
        small.round()
    shards = examples(num_clients)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    simulation = federation(shards, asynchronous)
    for _ in range(10):
        simulation.round()
    return resident("VmHWM") - before, resident("VmRSS") - before


def resident(kind: str) -> int:
    """Return the resident bytes of this process, at their peak (VmHWM) or now (VmRSS)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(kind))


def main() -> None:
    """Measure memory, then time rounds of federations of several sizes in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", type=int, default=[10**k for k in range(3, 8)], help="numbers of clients")
    parser.add_argument("--rounds", type=int, default=200, help="timed rounds of each (default: 200)")
    parser.add_argument("--asynchronous", action="store_true", help="a buffer in place of rounds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bytes_taken: dict[int, tuple[int, int]] = {}
    for number in options.clients:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
            bytes_taken[number] = apart.submit(memory, number, options.asynchronous).result()
    federations = {number: federation(examples(number), options.asynchronous) for number in options.clients}
    seconds = in_turns(federations, 20, options.rounds, time.process_time)
    first = options.clients[0]
    print("| clients | ms a round | ratio to the first, median (quartiles) | bytes a client at the peak | afterwards |")
    print("|---:|---:|---:|---:|---:|")
    for number in options.clients:
        ratios = [a / b for a, b in zip(seconds[number], seconds[first], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        milliseconds = 1e3 * statistics.median(seconds[number])
        peak, left = (f"{taken / number:,.0f}" for taken in bytes_taken[number])
        print(
            f"| {number:,} | {milliseconds:.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) | {peak} | {left} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
