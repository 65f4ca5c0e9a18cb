"""An experiment's examples where its model computes."""

from __future__ import annotations

from dataclasses import replace

import torch

from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData, Shards
from turnout.data.transforms import Transform, bake
from turnout.data.weights import ClassWeights, ExampleWeights


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
