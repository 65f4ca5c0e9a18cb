"""What it takes to go through clients on this machine: model, data, and how many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData, Shards
from turnout.data.transforms import Transform, bake
from turnout.data.weights import ClassWeights, ExampleWeights
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective


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


class DeviceData:
    """Shards on the device, each once, with the deterministic first transforms done once and for all.

    Args:
        data: all examples.
        device: where to.
        own_test: whether only a client's own test examples can say whether a model serves it.
        class_weights: how much an example counts by its class, beside its own weight; see `turnout.data.weights`.

    Attributes:
        train: what clients train on.
        test: what the model is judged by; None if there is nothing.
        validation: what settings are chosen by; None if there is nothing.
        client_validation: what each training client has for that; None if there is nothing.
        transforms: those that are left for every minibatch.
    """

    def __init__(
        self,
        data: FederatedData,
        device: torch.device,
        *,
        own_test: bool = False,
        class_weights: ClassWeights | None = None,
    ) -> None:
        self._first, self._device = data.transforms, device
        self._mapped = any(shards.mapped for shards in data.splits.values())
        self._weights = ExampleWeights.of(data.train.y, data.train.weights, data.num_classes, class_weights)
        self.train, self.transforms = self._place(data.train)
        self._on_device = {data.train: self.train}
        held_out = data.client_test if own_test else data.test or data.client_test
        self.test = None if held_out is None else self(held_out)
        self.client_validation = None if data.validation is None else self(data.validation)
        unseen = data.unseen_validation
        self.validation = self.client_validation if unseen is None else self(unseen)

    def __call__(self, shards: Shards) -> Shards:
        """Return some of the experiment's shards, on the device."""
        if shards not in self._on_device:
            self._on_device[shards] = self._place(shards)[0]
        return self._on_device[shards]

    def _place(self, shards: Shards) -> tuple[Shards, tuple[Transform, ...]]:
        weights = self._weights(shards.y, shards.weights)
        if self._mapped:  # what is done once and for all would be a copy of all inputs
            if self._device.type != "cpu":
                raise ConfigurationError(
                    f"device: {self._device} cannot read a stored federation: write to.data.stored(folder, mapped=False)"
                )
            return replace(shards, weights=weights), self._first
        x, later = bake(self._first, shards.x)
        return Shards(x, shards.y, shards.offsets, weights).to(self._device), later
