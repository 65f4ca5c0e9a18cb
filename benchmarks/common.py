"""Make random data, time federations in turns, and measure memory, for several benchmarks."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import torch

from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.simulation import Simulation

Name = TypeVar("Name")


def random_data(num_clients: int, num_examples: int, shape: tuple[int, ...], num_classes: int = 10) -> FederatedData:
    """Return a federation of clients with normal inputs of a shape, and labels that are independent of them."""
    rng = np.random.default_rng(0)
    total = num_clients * num_examples
    x = torch.from_numpy(rng.standard_normal((total, *shape), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, num_classes, total))
    return FederatedData("random", Shards(x, y, np.arange(num_clients + 1) * num_examples), num_classes)


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def next_cohort(simulation: Simulation) -> np.ndarray:
    """Return the clients that the next round selects, int64 ``[B]``."""
    return simulation.experiment.algorithm.selection.select(
        simulation.opt_in.candidates(simulation.availability, simulation.state.version)
    )


def in_turns(
    simulations: Mapping[Name, Simulation], first: int, rounds: int, clock: Callable[[], float]
) -> dict[Name, list[float]]:
    """Return the seconds of the rounds of federations that take turns, without the first rounds, which trace steps."""
    seconds: dict[Name, list[float]] = {name: [] for name in simulations}
    for turn in range(first + rounds):
        for name, simulation in simulations.items():
            begin = clock()
            simulation.round()
            if turn >= first:
                seconds[name].append(clock() - begin)
    return seconds
