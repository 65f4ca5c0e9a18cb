"""Hold model and data on the device, the number of clients that train side by side, and the present models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base import FixedCohort, Personalization
from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError
from turnout.core.device import memory_budget
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.data.transforms import Transform, bake
from turnout.data.weights import ClassWeights, ExampleWeights
from turnout.distributed.collectives import world_size
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.engine.trial import try_model
from turnout.population import BoundAttack
from turnout.record.client_memory import ClientMemory


def ignore_progress(what: str, done: int, total: int) -> None:
    """Ignore the progress of long work."""


_MOST_EXAMPLES = 8192  # in a forward pass on a GPU, where an operation takes about the same time for few and for many


@dataclass(eq=False)
class Workspace:
    """A model, the clients' examples, and the number of clients that train side by side.

    Attributes:
        objective: model and loss.
        data: the clients' examples, on the model's device.
        lanes: number of clients that train side by side.
        watch: receives the progress of long work within a round: its name, and how many clients of how many are done. It may
            end the run by raising an error.
    """

    objective: Objective
    data: DeviceData
    lanes: int = 1
    watch: Callable[[str, int, int], None] = ignore_progress

    def clients(self, ids: np.ndarray, shards: Shards | None = None) -> Clients:
        """Return the clients `ids` with these examples; None is their training examples."""
        return Clients(ids, ids, shards or self.data.train, self.objective, self.data.transforms)


def workspace_of(experiment: Configuration, attack: BoundAttack | None = None) -> Workspace:
    """Return the workspace of an experiment on its device, after its model was tried on a minibatch.

    Args:
        experiment: the experiment; its data choose the engine, and its memory budget the number of clients side by side.
        attack: the attack of dishonest clients, which may change the labels on which they train.

    Raises:
        ConfigurationError: if the model fails on the minibatch.
    """
    module, personal, device = experiment.build_model(), experiment.algorithm.personal, torch.device(experiment.device)
    personal_names = frozenset() if personal is None else personal.chosen(module)
    data = DeviceData(
        experiment.data, device, own_test=personal is not None, class_weights=experiment.class_weights, attack=attack
    )
    objective = Objective(
        module,
        experiment.loss,
        experiment.engine,
        device,
        personal_names,
        weighted=data.train.weights is not None,
        offsets="base" in experiment.algorithm.aggregation.reads,
        precision=experiment.precision,
        statistics=experiment.statistics,
    )
    space = Workspace(objective, data)
    space.lanes = _lanes(experiment, space)
    objective.lane_sizes = replace(objective.lane_sizes, usual=_usual_lanes(experiment, space.lanes))
    return space


def _lanes(experiment: Configuration, space: Workspace) -> int:
    """Try the model on a minibatch, choose the engine, and return how many clients train side by side."""
    algorithm, data, budget = experiment.algorithm, experiment.data, experiment.memory_budget
    measures = bool(algorithm.measurements or algorithm.selection.measurements)
    first = space.clients(np.zeros(1, dtype=np.int64))
    x, y = try_model(first, getattr(algorithm.local, "batch_size", 16), measures, data.num_classes)
    lanes = lanes_per_chunk(space.objective, x, y, memory_budget(space.objective.device, budget))
    if space.objective.device.type != "cpu":  # in training, so many examples fit the budget
        least = space.objective.examples_per_call
        space.objective.examples_per_call = max(least, min(lanes * len(x), _MOST_EXAMPLES))
    return lanes


def _usual_lanes(experiment: Configuration, lanes: int) -> frozenset[int]:
    """Return the numbers of clients that train side by side if all who are asked take part, as in almost every round."""
    number, pace, sizes = experiment.data.num_clients, experiment.pace, set[int]()
    selection = experiment.algorithm.selection
    selected = selection.size(number) if isinstance(selection, FixedCohort) else number
    of_pace = (getattr(pace, name) for name in ("buffer_size", "group_size") if hasattr(pace, name))
    for cohort in (number, selected, *of_pace):
        for share in (cohort // world_size(), -(-cohort // world_size())):
            sizes |= {share} if share <= lanes else {lanes, share % lanes}
    return frozenset(sizes)


def lanes_per_chunk(objective: Objective, x: torch.Tensor, y: torch.Tensor, budget: int) -> int:
    """Return the number of clients that fit the memory budget side by side.

    Args:
        objective: model and loss.
        x, y: a minibatch of one client.
        budget: bytes for the parameters, gradients and activations of these clients.
    """
    return max(1, budget // objective.bytes_per_lane(x, y))


def chunks(rows: slice, lanes: int) -> Iterator[slice]:
    """Yield consecutive slices of at most `lanes` rows."""
    return (slice(low, min(low + lanes, rows.stop)) for low in range(rows.start, rows.stop, lanes))


class DeviceData:
    """Shards on the device, each copied once, with the leading deterministic transforms applied.

    Args:
        data: all examples.
        device: the device.
        own_test: evaluate on the clients' test examples, as personal models require, in place of common ones.
        class_weights: weights of examples by class, in addition to their own; see `turnout.data.weights`.
        attack: the attack of dishonest clients; None if all are honest.

    Attributes:
        train: training examples of clients, with the labels on which attackers train.
        test: test examples of the model; None if there are none.
        validation: validation examples of the model; None if there are none.
        client_validation: validation examples of the training clients; None if there are none.
        transforms: the transforms that remain for every minibatch.
    """

    def __init__(
        self,
        data: FederatedData,
        device: torch.device,
        *,
        own_test: bool = False,
        class_weights: ClassWeights | None = None,
        attack: BoundAttack | None = None,
    ) -> None:
        self._first, self._device = data.transforms, device
        self._mapped = any(shards.mapped for shards in data.splits.values())
        self._weights = ExampleWeights.of(data.train.y, data.train.weights, data.num_classes, class_weights)
        honest, self.transforms = self._moved(data.train)
        self.train = honest if attack is None else attack.poisoned(honest, data.num_outputs)
        self._on_device = {data.train: honest}
        held_out = data.client_test if own_test else data.test or data.client_test
        self.test = None if held_out is None else self(held_out)
        self.client_validation = None if data.validation is None else self(data.validation)
        unseen = data.unseen_validation
        self.validation = self.client_validation if unseen is None else self(unseen)

    def __call__(self, shards: Shards) -> Shards:
        """Return shards on the device."""
        if shards not in self._on_device:
            self._on_device[shards] = self._moved(shards)[0]
        return self._on_device[shards]

    def _moved(self, shards: Shards) -> tuple[Shards, tuple[Transform, ...]]:
        """Return shards on the device, and the transforms that remain for every minibatch."""
        weights = self._weights(shards.y, shards.weights)
        if self._mapped:  # applying transforms now would copy all inputs into memory
            if self._device.type != "cpu":
                raise ConfigurationError(
                    f"device: {self._device} cannot read a stored federation: write to.data.stored(folder, mapped=False)"
                )
            return replace(shards, weights=weights), self._first
        x, later = bake(self._first, shards.x)
        return Shards(x, shards.y, shards.offsets, weights).to(self._device), later


class PresentModels:
    """The server's model, with the personal parameters of each client.

    Args:
        params: the shared parameters, ``[P_u]``; replaced after every step.
        memory: holds the personal parameters.
        personal: the personalization; None if all parameters are shared.
    """

    def __init__(self, params: torch.Tensor, memory: ClientMemory, personal: Personalization | None) -> None:
        self.params, self.personal, self._memory = params, personal, memory

    def serving(self, ids: np.ndarray) -> torch.Tensor:
        """Return the model with which each client predicts, ``[B, P]``."""
        if self.personal is None:
            return self.params.expand(len(ids), -1)
        return self.personal.serving(self.params, self._memory.gather(ids))

    def trained(self, ids: np.ndarray) -> torch.Tensor:
        """Return the model that each client would train, ``[B, P]``."""
        params = self.params if self.personal is None else self.personal.join(self.params, self._memory.gather(ids))
        return params.expand(len(ids), -1)
