"""Compare the rounds of FOLB with those of FedProx, to measure the cost of FOLB's gradients.

Both train a logistic regression with the same proximal term on the same cohorts and minibatches. FOLB also computes the
gradient on all data of each client, and its heterogeneous variant another one after training. Rounds take turns in one
process, so that a change of the machine's speed affects all of them.

    python benchmarks/folb.py                       # all workloads, one JSON line each
    python benchmarks/folb.py digits --rounds 100
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch

import turnout as to
from common import next_cohort
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.simulation import Simulation


@dataclass(frozen=True)
class Workload:
    """The data and the local steps of the clients.

    Attributes:
        features, classes: sizes of the logistic regression.
        clients: number of clients; 10 of them take part in a round.
        examples: smallest and largest number of examples of a client, which are drawn uniformly.
        local: the local steps.
    """

    features: int
    classes: int
    clients: int
    examples: tuple[int, int]
    local: to.Sgd


WORKLOADS = {
    # MNIST as plain_loop.py has it
    "mnist": Workload(784, 10, 1000, (60, 60), to.Sgd(lr=0.01, steps=20, batch_size=10)),
    # the paper's work: 1 to 20 epochs, drawn anew for each client and round
    "epochs": Workload(
        60, 10, 30, (50, 300), to.Sgd(lr=0.01, steps=None, epochs=to.local.UniformWork(1, 20), batch_size=10)
    ),
    # the command line's defaults
    "digits": Workload(64, 10, 100, (8, 22), to.Sgd(lr=0.1, steps=5, batch_size=16)),
    # one step on all data: the gradient is FOLB's and the step's
    "full batch": Workload(784, 10, 1000, (40, 60), to.Sgd(lr=0.01, steps=1, batch_size=60)),
    # one step on a sixth of the data: nothing to share, and the least work beside which a gradient can be
    "one minibatch": Workload(784, 10, 1000, (60, 60), to.Sgd(lr=0.01, steps=1, batch_size=10)),
}
PROX = to.local.Prox(1.0)
ALGORITHMS = {
    "fedprox": lambda local: to.fedprox(local, mu=PROX.mu, weighted=False),
    "folb": lambda local: to.folb(local, also=(PROX,)),
    "folb_heterogeneous": lambda local: to.folb_heterogeneous(local, also=(PROX,)),
}


def simulation_of(workload: Workload, algorithm: str) -> Simulation:
    """Return a simulation of a workload with random data."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(workload.examples[0], workload.examples[1] + 1, workload.clients)
    x = torch.from_numpy(rng.standard_normal((sizes.sum(), workload.features), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, workload.classes, sizes.sum()))
    experiment = to.Experiment(
        data=FederatedData("random", Shards(x, y, np.concatenate([[0], np.cumsum(sizes)])), workload.classes),
        model=to.models.Logistic(),
        algorithm=ALGORITHMS[algorithm](workload.local),
        rounds=10**6,
        evaluate_every=10**6,
    )
    return Simulation(experiment)


def compare(name: str, rounds: int) -> dict[str, object]:
    """Time all algorithms on a workload."""
    simulations = {algorithm: simulation_of(WORKLOADS[name], algorithm) for algorithm in ALGORITHMS}
    seconds: dict[str, list[float]] = {algorithm: [] for algorithm in ALGORITHMS}
    # Until the operations of all shapes are traced: part of no side's pace.
    untimed = max(10, rounds // 2)
    for number in range(untimed + rounds):
        cohorts = [next_cohort(simulation).tolist() for simulation in simulations.values()]
        assert all(cohort == cohorts[0] for cohort in cohorts), "the cohorts differ"
        for algorithm, simulation in simulations.items():
            begin = time.perf_counter()
            simulation.round()
            if number >= untimed:
                seconds[algorithm].append(time.perf_counter() - begin)
    found: dict[str, object] = {"workload": name, "threads": torch.get_num_threads(), "rounds": rounds}
    for algorithm, times in seconds.items():
        found[f"{algorithm}_ms"] = round(1000 * statistics.median(times), 2)
        if algorithm != "fedprox":
            ratios = [own / base for own, base in zip(times, seconds["fedprox"], strict=True)]
            found[f"{algorithm}_ratio"] = round(statistics.median(ratios), 2)
            found[f"{algorithm}_quartiles"] = [round(q, 2) for q in statistics.quantiles(ratios, n=4)[::2]]
    return found


def main() -> None:
    """Run the named workloads, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[[], *WORKLOADS], help="default: all")
    parser.add_argument("--rounds", type=int, default=200, help="timed rounds of each (default: 200)")
    parser.add_argument("--threads", type=int, default=1, help="threads (default: 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    for name in options.workloads or WORKLOADS:
        print(json.dumps(compare(name, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
