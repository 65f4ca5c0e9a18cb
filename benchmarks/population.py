"""Round time and memory against the number of clients: a cohort of 100 under Markovian participation, FedAU's weights.

Every client holds two examples of 64 numbers, so that a million of them fit; a round trains 100 clients for 5 steps.
The federations of different size take turns round by round, so that a change of the machine's speed hits all alike.

    python benchmarks/population.py                          # a thousand and a million clients
    python benchmarks/population.py 1000 100000 1000000 10000000 --rounds 100
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time

import numpy as np
import torch

import turnout as to
from turnout.data.federated import FederatedData, Shards
from turnout.simulation import Simulation


def federation(num_clients: int) -> Simulation:
    """A federation of that many clients."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((2 * num_clients, 64), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 10, 2 * num_clients))
    experiment = to.Experiment(
        data=FederatedData("random", Shards(x, y, 2 * np.arange(num_clients + 1)), 10),
        model=to.models.Mlp(hidden=(64,)),
        algorithm=to.fedau(to.Sgd(lr=0.01, steps=5, batch_size=16), also=(to.Uniform(100),)),
        population=to.Population(to.Markov(mean=0.1, correlated_with_labels=0.1)),
        rounds=10**6,
        evaluate_every=10**6,
    )
    return Simulation(experiment)


def main() -> None:
    """Time rounds of federations of several sizes, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", nargs="*", type=int, default=[1_000, 1_000_000], help="numbers of clients")
    parser.add_argument("--rounds", type=int, default=200, help="timed rounds of each (default: 200)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    federations: dict[int, Simulation] = {}
    megabytes: dict[int, float] = {}
    for number in options.clients:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        federations[number] = federation(number)
        megabytes[number] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    seconds: dict[int, list[float]] = {number: [] for number in options.clients}
    for turn in range(options.rounds + 20):
        for number, simulation in federations.items():
            begin = time.perf_counter()
            simulation.round()
            if turn >= 20:
                seconds[number].append(time.perf_counter() - begin)
    first = options.clients[0]
    for number in options.clients:
        ratios = [a / b for a, b in zip(seconds[number], seconds[first], strict=True)]
        result = {
            "clients": number,
            "milliseconds_a_round": round(1e3 * statistics.median(seconds[number]), 2),
            f"ratio_to_{first}": round(statistics.median(ratios), 3),
            "setup_peak_megabytes": round(megabytes[number], 1),
            "of_which_examples": round(federations[number].experiment.data.train.x.nbytes / 2**20, 1),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
