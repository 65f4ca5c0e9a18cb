"""Measure the time to select a cohort by the number of clients, for every selection without measurements of clients.

Cohorts of 10 among the clients that are available by Markovian availability, a tenth of all; `Poisson` draws 10 on average.
The selections of F3AST and FedLaAvg record who took part. Seconds are processor time on one thread, medians over rounds.

    python benchmarks/selections.py
    python benchmarks/selections.py 1000 1000000 --rounds 200
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

import turnout as to
from turnout.base import RecordingSelection, Selection
from turnout.core.candidates import Candidates
from turnout.core.types import Federation, Report


def selections(num_clients: int) -> dict[str, Selection]:
    """Return the selections, with cohorts of 10."""
    even = tuple([1.0 / num_clients] * num_clients)
    return {
        "Uniform": to.selection.Uniform(10),
        "WithReplacement": to.selection.WithReplacement(10),
        "Poisson": to.selection.Poisson(100 / num_clients),
        "LeastServed": to.selection.LeastServed(10),
        "LeastServed, shares": to.selection.LeastServed(10, shares=even),
        "LongestAbsent": to.selection.LongestAbsent(10),
        "AllAvailable": to.selection.AllAvailable(),
    }


def milliseconds(selection: Selection, num_clients: int, rounds: int) -> float:
    """Return the median time of a selection."""
    bound = to.availability.Markov(mean=0.1).bind(num_clients)
    state = selection.init(Federation(num_clients, 1)) if isinstance(selection, RecordingSelection) else {}
    taken = []
    for version in range(rounds):
        candidates = Candidates(lambda some, t=version: bound.available(some, t), num_clients, version, 0, record=state)
        begin = time.process_time()
        cohort = selection.select(candidates)
        if isinstance(selection, RecordingSelection):
            ones = np.ones_like(cohort)
            state = selection.apply(Report(cohort, ones, ones, ones, torch.zeros(len(cohort), 1)), version, state)
        taken.append(time.process_time() - begin)
    return 1e3 * statistics.median(taken)


def main() -> None:
    """Print a table of selections by numbers of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", type=int, default=[10**3, 10**6], help="numbers of clients")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of each (default: 50)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| selection | {' | '.join(f'{number:,} clients, ms' for number in options.clients)} |")
    print("|---|" + "---:|" * len(options.clients))
    for name in selections(1000):
        times = [milliseconds(selections(number)[name], number, options.rounds) for number in options.clients]
        print(f"| {name} | {' | '.join(f'{each:.2f}' for each in times)} |", flush=True)


if __name__ == "__main__":
    main()
