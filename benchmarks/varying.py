"""Compare rounds whose cohorts vary with rounds of a fixed cohort of the same mean, the first rounds included.

    python benchmarks/varying.py mlp 100 600 bernoulli              # model, clients, rounds, participation
    python benchmarks/varying.py mlp 100 600 bernoulli --epochs 1   # one pass over the data per round
    python benchmarks/varying.py mlp 100 600 flash --mean 0.18      # the mean participation of the phones

FedAU with clients of 5 to 99 random examples. Prints processor seconds of all rounds, in processes that run in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch

import turnout as to
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.simulation.simulation import Simulation

MODELS = {"mlp": (64, to.models.Mlp(hidden=(64,))), "logistic": (784, to.models.Logistic())}


def seconds(model: str, clients: int, rounds: int, participation: str, mean: float, epochs: int | None) -> float:
    """Return the processor seconds of all rounds of a run."""
    width, built = MODELS[model]
    offsets = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(5, 100, size=clients))])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(int(offsets[-1]), width, generator=generator)
    y = torch.randint(10, (len(x),), generator=generator)
    local = to.Sgd(lr=0.05, steps=5 if epochs is None else None, epochs=epochs, batch_size=16)
    if participation == "fixed":
        fixed = to.selection.Uniform(round(clients * mean))
        algorithm, population = to.fedau(local=local, cutoff=50, also=(fixed,)), to.Population()
    else:
        patterns = {"bernoulli": to.availability.Bernoulli, "markov": to.availability.Markov}
        pattern = patterns[participation](mean=mean) if participation in patterns else to.availability.Flash()
        algorithm, population = to.fedau(local=local, cutoff=50), to.Population(availability=pattern)
    data = FederatedData("random", Shards(x, y, offsets), 10)
    simulation = Simulation(to.Experiment(data, built, algorithm, population, rounds=rounds, evaluate_every=10**9))
    begin = time.process_time()
    for _ in range(rounds - 1):
        simulation.round()
    return time.process_time() - begin


def main() -> None:
    """Time both kinds of rounds in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("clients", type=int)
    parser.add_argument("rounds", type=int)
    parser.add_argument("participation", choices=("bernoulli", "markov", "flash"))
    parser.add_argument("--mean", type=float, default=0.1)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--pairs", type=int, default=3)
    given = parser.parse_args()
    ratios = []
    # A process for each run, because runs of one process share their traces.
    with ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (1,), max_tasks_per_child=1) as processes:
        for _ in range(given.pairs):
            fixed, varying = (
                processes.submit(
                    seconds, given.model, given.clients, given.rounds, participation, given.mean, given.epochs
                ).result()
                for participation in ("fixed", given.participation)
            )
            ratios.append(varying / fixed)
            print(f"fixed {fixed:.2f} s, {given.participation} {varying:.2f} s, ratio {ratios[-1]:.2f}", flush=True)
    print(f"median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
