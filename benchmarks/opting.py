"""Measure the share of a round that asking every client whether the model meets its requirement takes.

Digits with 100 clients, MaxFL, an MLP, and 10 clients a round with 5 steps of 16 or 30 of 32. The same federation with and
without opting out takes turns, round by round. All clients are content, so that both train the same cohorts. For comparison,
a loop asks one client after another.

    python benchmarks/opting.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import torch

import turnout as to
from turnout.engine.full_batch import full_scores
from turnout.simulation import Simulation

CLIENTS = 100


def federation(local: to.Sgd, opting: to.behavior.Opting | None) -> Simulation:
    """Return a federation whose clients are content with any model."""
    requirement = to.requirement.GivenRequirement((1e9,) * CLIENTS)
    experiment = to.Experiment(
        data=to.data.digits().split(to.partition.Dirichlet(alpha=1.0), num_clients=CLIENTS),
        model=to.models.Mlp(hidden=(64,)),
        algorithm=to.maxfl(local, cohort_size=10),
        population=to.Population(requirement=requirement, opting=opting),
        rounds=10**6,
        evaluate_every=10**6,
    )
    return Simulation(experiment)


def one_by_one(simulation: Simulation) -> float:
    """Return the seconds that a loop over clients takes for the same question."""
    begin = time.perf_counter()
    for k in range(CLIENTS):
        full_scores(simulation.workspace.clients(np.array([k])), simulation.state.params)
    return time.perf_counter() - begin


def main() -> None:
    """Time rounds with and without opting out, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="timed rounds of each (default: 300)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, local in {
        "5 steps of 16": to.Sgd(lr=0.1, steps=5, batch_size=16),
        "30 steps of 32": to.Sgd(lr=0.1, steps=30, batch_size=32),
    }.items():
        plain, asking = federation(local, None), federation(local, to.behavior.Opting(0))
        seconds: dict[str, list[float]] = {"plain": [], "asking": [], "loop": []}
        for turn in range(options.rounds + 20):
            took = {}
            for kind, simulation in (("plain", plain), ("asking", asking)):
                begin = time.perf_counter()
                simulation.round()
                took[kind] = time.perf_counter() - begin
            if turn % 10 == 0:
                took["loop"] = one_by_one(asking)
            if turn >= 20:
                for kind, value in took.items():
                    seconds[kind].append(value)
        assert torch.equal(plain.state.params, asking.state.params)
        ratios = [a / b for a, b in zip(seconds["asking"], seconds["plain"], strict=True)]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        result = {
            "local": name,
            "milliseconds_a_round": round(1e3 * statistics.median(seconds["plain"]), 2),
            "with_opting": round(1e3 * statistics.median(seconds["asking"]), 2),
            "ratio": round(middle, 3),
            "quartiles": [round(low, 3), round(high, 3)],
            "loop_over_clients_milliseconds": round(1e3 * statistics.median(seconds["loop"]), 2),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
