"""What it takes to go through clients on this machine: model, data, and how many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.data.federated import Shards
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.simulation.device_data import DeviceData


def nobody(what: str, done: int, total: int) -> None:
    """Take no note of how far long work is."""


@dataclass(eq=False)
class Workspace:
    """A model, examples, and how many clients fit side by side.

    Attributes:
        objective: model and loss.
        data: the clients' examples, where the model computes.
        lanes: how many clients train side by side.
        watch: is told how far work is that takes long beside rounds: what it is, and how many clients are done of how many.
            It may end the run by raising an error.
    """

    objective: Objective
    data: DeviceData
    lanes: int = 1
    watch: Callable[[str, int, int], None] = nobody

    def clients(self, ids: np.ndarray, shards: Shards | None = None) -> Clients:
        """Return lanes for the clients `ids`, who hold `shards`; None is what they train on."""
        return Clients(ids, ids, shards or self.data.train, self.objective, self.data.transforms)


def workspace_of(experiment: Configuration) -> Workspace:
    """Return an experiment's model and data, where they compute."""
    module, personal, device = experiment.build_model(), experiment.algorithm.personal, torch.device(experiment.device)
    own = frozenset() if personal is None else personal.chosen(module)
    data = DeviceData(experiment.data, device, own_test=personal is not None, class_weights=experiment.class_weights)
    weighted = data.train.weights is not None
    offsets = experiment.algorithm.aggregation.moves_base
    objective = Objective(
        module, experiment.loss, experiment.engine, device, own, weighted, offsets, experiment.precision
    )
    return Workspace(objective, data)


def lanes_per_chunk(objective: Objective, x: torch.Tensor, y: torch.Tensor, memory_budget: int) -> int:
    """How many clients to train in one call: as many as fit the memory budget.

    Args:
        x, y: a minibatch of one client.
        memory_budget: bytes for the parameters, gradients and activations of the clients in flight.
    """
    return max(1, memory_budget // objective.bytes_per_lane(x, y))


def chunks(rows: slice, lanes: int) -> Iterator[slice]:
    """Yield a stretch of clients in stretches of at most so many."""
    return (slice(low, min(low + lanes, rows.stop)) for low in range(rows.start, rows.stop, lanes))
