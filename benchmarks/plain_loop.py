"""Compare client updates per second with those of a plain PyTorch loop over clients, in turns in one process.

The loop is what one would write without a simulator: load the global weights, take a few optimizer steps on fancy-indexed
minibatches, and sum the weights. Data are random. The script checks that both compute the same model. Rounds of the two
alternate, so that a change of the machine's speed affects both.

    python benchmarks/plain_loop.py            # all workloads, a table and one JSON line each
    python benchmarks/plain_loop.py logistic --rounds 40
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import turnout as to
from common import next_cohort, random_data
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.simulation import Simulation


@dataclass(frozen=True)
class Workload:
    """The sizes of a comparison, and the ratio that it has to reach."""

    model: to.models.ModelSpec
    shape: tuple[int, ...]
    clients: int
    examples: int
    cohort: int
    steps: int
    batch_size: int
    least: float


WORKLOADS = {
    "logistic": Workload(to.models.Logistic(), (784,), 1000, 60, 10, 20, 10, 4.0),
    "mlp": Workload(to.models.Mlp(hidden=(64, 30)), (784,), 100, 300, 5, 30, 32, 1.5),
    "cnn": Workload(to.models.Cnn.cifar10(), (3, 32, 32), 250, 200, 25, 5, 16, 1.0),
}


def simulation_of(workload: Workload) -> Simulation:
    """Return a simulation of a workload."""
    experiment = to.Experiment(
        data=random_data(workload.clients, workload.examples, workload.shape),
        model=workload.model,
        algorithm=to.average_participating(
            to.Sgd(lr=0.01, steps=workload.steps, batch_size=workload.batch_size),
            also=(to.selection.Uniform(workload.cohort),),
        ),
        rounds=10**6,
        evaluate_every=10**6,
    )
    return Simulation(experiment)


def plain_round(simulation: Simulation, model: nn.Module, cohort: np.ndarray, minibatches: torch.Tensor) -> nn.Module:
    """Take a round of federated averaging, client after client; `minibatches` ``[B, S, b]`` are rows of the flat data."""
    shards = simulation.experiment.data.train
    local = copy.deepcopy(model)
    total: dict[str, torch.Tensor] = {}
    for client in range(len(cohort)):
        local.load_state_dict(model.state_dict())
        optimizer = torch.optim.SGD(local.parameters(), lr=0.01)
        for rows in minibatches[client]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(local(shards.x[rows]), shards.y[rows]).backward()
            optimizer.step()
        for name, value in local.state_dict().items():
            total[name] = total[name] + value if name in total else value.clone()
    mean = copy.deepcopy(model)
    mean.load_state_dict({name: value / len(cohort) for name, value in total.items()})
    return mean


def compare(name: str, rounds: int) -> dict[str, object]:
    """Time both on a workload."""
    workload = WORKLOADS[name]
    simulation, ours, plain = simulation_of(workload), [], []
    sgd = simulation.experiment.algorithm.local
    assert isinstance(sgd, to.Sgd)
    spec = simulation.experiment.build_model()
    for number in range(rounds + 1):
        state, cohort = simulation.state, next_cohort(simulation)
        clients = Clients(cohort, cohort, simulation.experiment.data.train, simulation.objective)
        task = Task(state.params, state.version, 0)
        planned = sgd.plan(task, simulation.memory.gather(cohort), clients)
        simulation.objective.layout.load(spec, state.params)
        begin = time.perf_counter()
        after = plain_round(simulation, spec, cohort, torch.from_numpy(planned.examples))
        middle = time.perf_counter()
        simulation.round()
        end = time.perf_counter()
        difference = (simulation.objective.layout.flatten(after) - simulation.state.params).abs().max()
        assert difference < 1e-4, f"the two disagree by {difference}"
        if number >= min(10, rounds // 2):  # the tracer's start is part of neither side's pace
            plain.append(middle - begin)
            ours.append(end - middle)
    ratios = [p / o for p, o in zip(plain, ours, strict=True)]
    return {
        "workload": name,
        "engine": simulation.objective.engine,
        "threads": torch.get_num_threads(),
        "plain_updates_per_second": round(workload.cohort / statistics.median(plain), 1),
        "turnout_updates_per_second": round(workload.cohort / statistics.median(ours), 1),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_quartiles": [round(q, 2) for q in statistics.quantiles(ratios, n=4)[::2]],
        "least": workload.least,
        "rounds": len(ratios),
    }


def main() -> None:
    """Run the named workloads, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[[], *WORKLOADS], help="default: all")
    parser.add_argument("--rounds", type=int, default=None, help="timed rounds of each (default: 200, cnn 20)")
    parser.add_argument("--threads", type=int, default=1, help="threads for both sides (default: 1)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    for name in options.workloads or WORKLOADS:
        print(json.dumps(compare(name, options.rounds or (20 if name == "cnn" else 200))), flush=True)


if __name__ == "__main__":
    main()
