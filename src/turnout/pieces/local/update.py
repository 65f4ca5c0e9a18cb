"""Rules of a local step: the direction that its minibatches give, and what an update rule makes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch

from turnout.core.checks import not_negative, positive, refuse
from turnout.core.schedule import LARGEST
from turnout.core.types import State

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


def descend(params: torch.Tensor, direction: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    """Take the step ``y <- y - lr d`` from `params` along a direction d, in place, and return `params`."""
    return params.addcmul_(direction, lr, value=-1)


@dataclass(frozen=True)
class Update(ABC):
    """Compute the direction d of the local steps ``y <- y - lr d`` of B clients from gradients and a state.

    An update rule is the part of a `Solver` that the engine traces. Equal rules share traces between runs, so a rule is
    a frozen dataclass of numbers, and the step size is not among them.

    Args:
        weight_decay: factor of the L2 penalty, >= 0; its gradient is added before any correction.
        max_norm: largest Euclidean norm of a gradient, > 0; larger gradients are scaled down. None does not clip.
    """

    weight_decay: float = 0.0
    max_norm: float | None = None

    @abstractmethod
    def init(self, params: torch.Tensor) -> State:
        """Return the state before the first step from parameters ``[B, P]``: tensors ``[B, ...]`` by name."""

    @abstractmethod
    def direction(self, gradient: torch.Tensor, state: State, params: torch.Tensor) -> torch.Tensor:
        """Return the direction to descend, ``[B, P]``.

        Args:
            gradient: gradient after all corrections, ``[B, P]``; may be changed in place.
            state: state of the rule, ``[B, ...]`` by name; changed in place.
            params: present parameters of the clients, ``[B, P]``; not changed.
        """

    def step(self, params: torch.Tensor, gradient: torch.Tensor, state: State, lr: torch.Tensor) -> None:
        """Take the step ``y <- y - lr d`` in place; override it where the step is faster without a separate direction.

        Args:
            params, gradient, state: as in `direction`.
            lr: step sizes, ``[B, 1]``, or ``[1, 1]`` for all clients.
        """
        descend(params, self.direction(gradient, state, params), lr)

    @property
    def is_plain(self) -> bool:
        """True if the direction is the unchanged gradient."""
        return False

    def clipped(self, gradient: torch.Tensor, statistics: slice | None) -> torch.Tensor:
        """Return gradients ``[B, P]``, each scaled to a norm of at most `max_norm`.

        The columns `statistics` belong to running statistics of BatchNorm: they do not count in the norm and are not
        scaled.
        """
        if self.max_norm is None:
            return gradient
        counted = gradient
        if statistics is not None:
            counted = torch.cat([gradient[:, : statistics.start], gradient[:, statistics.stop :]], dim=1)
        norm = torch.linalg.vector_norm(counted, dim=1, keepdim=True)
        scaled = gradient * (self.max_norm / (norm + _OFFSET)).clamp(max=1.0)
        if statistics is not None:
            scaled[:, statistics] = gradient[:, statistics]
        return scaled


_OFFSET = 1e-6  # as torch.nn.utils.clip_grad_norm_ adds it to norms


def _check(sign: Callable[[str, float], None], name: str, value: float) -> None:
    """Check the sign of a number, and that it is not too large for float32."""
    sign(name, value)
    if value > LARGEST:
        raise refuse(name, given=value, needed=f"a number <= {LARGEST:.4g}, as float32 holds")


WeightDecay = Annotated[float, partial(_check, not_negative)]
"""A number >= 0 that float32 holds."""

MaxNorm = Annotated[float, partial(_check, positive)]
"""A number > 0 that float32 holds."""
