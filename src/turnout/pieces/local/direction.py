"""Compute the direction of a local step from the gradients of its minibatches."""

from __future__ import annotations

from collections.abc import Callable

import torch

GradientAt = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]
"""Function from parameters ``[B, P]`` and a minibatch number in the step to loss ``[B]`` and gradient ``[B, P]``."""

Direction = Callable[[torch.Tensor, GradientAt], tuple[torch.Tensor, torch.Tensor]]
"""Function from parameters and a `GradientAt` to the loss ``[B]`` and direction ``[B, P]`` of a step.

Runs with equal directions share traces.
"""


def steepest(params: torch.Tensor, gradient: GradientAt) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss and the gradient on the first minibatch of the step."""
    return gradient(params, 0)


def shares(mask: torch.Tensor | None, parts: range, num_lanes: int, like: torch.Tensor) -> torch.Tensor:
    """Return the share of a step's examples in each of its minibatches, ``[parts, B]``; equal shares without a mask."""
    if mask is None:
        return like.new_full((len(parts), num_lanes), 1 / len(parts))
    counts = mask[parts.start : parts.stop].sign().sum(dim=2)
    return counts / counts.sum(dim=0)
