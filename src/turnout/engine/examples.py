"""The training examples of clients, and minibatches of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.random import fold
from turnout.data.federated import Shards
from turnout.data.transforms import Transform, apply_transforms
from turnout.engine.objective import Objective


@dataclass(frozen=True, eq=False)
class Examples:
    """The training examples of B clients, with the objective.

    Attributes:
        ids: which clients they are in the federation, int64 ``[B]``.
        rows: which clients of `shards` they are, int64 ``[B]``; the same as `ids` in a simulation, 0 on a real machine
            that holds its own data only.
        shards: the data, on the objective's device.
        objective: model and loss.
        transforms: applied to a minibatch before the model.
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
        """Return inputs and targets ``[B, b, ...]`` of the examples ``[B, b]`` (positions in the flat data).

        Args:
            keys: 64 random bits a client, ``[B]``; every example of a minibatch has its own augmentation from them. None
                leaves random transforms out.
        """
        return minibatch(self.shards.x, self.shards.y, examples, keys, self.transforms)


def minibatch(
    x: torch.Tensor,
    y: torch.Tensor,
    examples: torch.Tensor,
    keys: torch.Tensor | None,
    transforms: tuple[Transform, ...],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Take inputs and targets ``[B, b, ...]`` of the examples ``[B, b]`` from flat `x` and `y`; see `Examples.minibatch`."""
    flat = examples.reshape(-1)
    x, y = x.index_select(0, flat), y.index_select(0, flat)
    if transforms:
        bits = None
        if keys is not None:
            bits = fold(keys[:, None], torch.arange(examples.shape[1], device=keys.device)).reshape(-1)
        x = apply_transforms(transforms, x, bits, training=bits is not None)
    shape = tuple(examples.shape)
    return x.view(*shape, *x.shape[1:]), y.view(*shape, *y.shape[1:])
