"""Compare the peak memory of large cohorts whose updates are summed on arrival with that of updates that are held.

Two rounds of all clients, with random data, each in its own process. `held` is the cost of algorithms that read single
updates (FOLB, MIFA), and would be that of FedAU if updates were not summed on arrival.

    python benchmarks/memory.py                # both workloads, both ways, one JSON line each
    python benchmarks/memory.py cnn --ways summed
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass

import torch

import turnout as to
from common import peak, random_data
from turnout.base.algorithm import Algorithm
from turnout.engine.allocator import keep_large_buffers
from turnout.simulation import Simulation


@dataclass(frozen=True)
class Workload:
    """The sizes of a model and its cohort."""

    model: to.models.ModelSpec
    shape: tuple[int, ...]
    clients: int
    examples: int
    batch_size: int


WORKLOADS = {
    "logistic": Workload(to.models.Logistic(), (784,), 10_000, 20, 10),
    "cnn": Workload(to.models.Cnn.cifar10(), (3, 32, 32), 500, 100, 16),
}


def measure(name: str, way: str, budget: int) -> dict[str, object]:
    """Measure two rounds of a workload in this process."""
    workload = WORKLOADS[name]
    torch.set_num_threads(1)
    keep_large_buffers()
    if way == "held":
        Algorithm.sums_early = property(lambda _: False)  # type: ignore[assignment]
    imported = peak()
    experiment = to.Experiment(
        data=random_data(workload.clients, workload.examples, workload.shape),
        model=workload.model,
        algorithm=to.fedau(to.Sgd(lr=0.01, steps=5, batch_size=workload.batch_size)),
        rounds=3,
        evaluate_every=3,
        memory_budget=budget,
    )
    simulation = Simulation(experiment)
    made, begin = peak(), time.perf_counter()
    for _ in range(2):
        simulation.round()
    return {
        "workload": name,
        "updates": way,
        "clients": workload.clients,
        "parameters": simulation.server.federation.num_params,
        "clients_at_a_time": simulation.workspace.lanes,
        "imported_mb": round(imported),
        "made_mb": round(made),
        "peak_mb": round(peak()),
        "seconds_a_round": round((time.perf_counter() - begin) / 2, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help="which (default: all)")
    parser.add_argument("--ways", nargs="+", default=["summed", "held"], choices=["summed", "held"])
    parser.add_argument("--budget", type=int, default=1 << 30, help="the experiment's memory_budget in bytes")
    parser.add_argument("--here", action="store_true", help="measure one in this very process")
    options = parser.parse_args()
    for name in options.workloads:
        for way in options.ways:
            if options.here:
                print(json.dumps(measure(name, way, options.budget)), flush=True)
            else:
                rest = [name, "--ways", way, "--budget", str(options.budget), "--here"]
                subprocess.run([sys.executable, __file__, *rest], check=True)


if __name__ == "__main__":
    main()
