"""The training examples of clients, and their minibatches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.random import fold
from turnout.data.shards import Shards
from turnout.data.transforms import Transform, apply_transforms
from turnout.engine.objective import Objective


@dataclass(frozen=True, eq=False)
class Examples:
    """The training examples of B clients, with the objective.

    Attributes:
        ids: numbers of the clients in the federation, int64 ``[B]``.
        rows: numbers of the clients in `shards`, int64 ``[B]``; equal to `ids` in a simulation, 0 on a real machine,
            which holds only its own data.
        shards: the data, on the objective's device.
        objective: model and loss.
        transforms: transforms of a minibatch before the forward pass.
    """

    ids: np.ndarray
    rows: np.ndarray
    shards: Shards
    objective: Objective
    transforms: tuple[Transform, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_examples(self) -> np.ndarray:
        """Size of each client's training data, int64 ``[B]``."""
        return self.shards.offsets[self.rows + 1] - self.shards.offsets[self.rows]

    def minibatch(self, examples: torch.Tensor, keys: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets ``[B, b, ...]`` of examples.

        Args:
            examples: positions in the flat data, int64 ``[B, b]``.
            keys: 64 random bits for each client, int64 ``[B]``, from which every example of a minibatch gets its own
                augmentation; None omits random transforms.
        """
        return minibatch(self.shards.x, self.shards.y, examples, keys, self.transforms)


def minibatch(
    x: torch.Tensor,
    y: torch.Tensor,
    examples: torch.Tensor,
    keys: torch.Tensor | None,
    transforms: tuple[Transform, ...],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets ``[B, b, ...]`` of examples in flat `x` and `y`; see `Examples.minibatch`."""
    flat = examples.reshape(-1)
    x, y = x.index_select(0, flat), y.index_select(0, flat)
    if transforms:
        bits = None
        if keys is not None:
            bits = fold(keys[:, None], torch.arange(examples.shape[1], device=keys.device)).reshape(-1)
        x = apply_transforms(transforms, x, bits, training=bits is not None)
    shape = tuple(examples.shape)
    return x.view(*shape, *x.shape[1:]), y.view(*shape, *y.shape[1:])
