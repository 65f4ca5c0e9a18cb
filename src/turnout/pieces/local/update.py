"""Base class of the rules by which a gradient becomes the direction of a local step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from turnout.core.checks import not_negative, refuse
from turnout.core.schedule import LARGEST
from turnout.core.types import State


def descend(params: torch.Tensor, direction: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    """Move `params` in place by ``y <- y - lr d``, and give them back."""
    return params.addcmul_(direction, lr, value=-1)


@dataclass(frozen=True)
class Update(ABC):
    """Rule of the steps ``y <- y - lr d`` of B clients: a state, and a direction d from gradient and state.

    Rules that are equal share traces between runs, so a rule is a frozen dataclass of numbers without the step size.

    Args:
        weight_decay: factor of the L2 penalty, whose gradient is added to the gradient before any correction.
        max_norm: greatest norm of a gradient; None clips nothing.
    """

    weight_decay: float = 0.0
    max_norm: float | None = None

    @abstractmethod
    def init(self, params: torch.Tensor) -> State:
        """Return the state before the first step of clients with these parameters ``[B, P]``, rows ``[B, ...]`` by name."""

    @abstractmethod
    def direction(self, gradient: torch.Tensor, state: State, params: torch.Tensor) -> torch.Tensor:
        """Return the direction to descend, ``[B, P]``.

        Args:
            gradient: with all corrections, ``[B, P]``; it may be changed in place.
            state: changed in place.
            params: where the clients are, ``[B, P]``; left as they are.
        """

    def step(self, params: torch.Tensor, gradient: torch.Tensor, state: State, lr: torch.Tensor) -> None:
        """Move `params` in place by ``y <- y - lr d``; for rules that have a faster way than by their direction.

        Args:
            params, gradient, state: as in `direction`.
            lr: step sizes, ``[B, 1]``, or ``[1, 1]`` for all clients.
        """
        descend(params, self.direction(gradient, state, params), lr)

    @property
    def is_plain(self) -> bool:
        """True if the direction is the gradient as it is."""
        return False

    def clipped(self, gradient: torch.Tensor, num_statistics: int) -> torch.Tensor:
        """Return gradients ``[B, P]`` with a norm of at most `max_norm` each, running statistics at their end left out."""
        if self.max_norm is None:
            return gradient
        whole = gradient[:, :-num_statistics] if num_statistics else gradient
        norm = torch.linalg.vector_norm(whole, dim=1, keepdim=True)
        factor = (self.max_norm / (norm + _OFFSET)).clamp(max=1.0)
        if num_statistics:
            return torch.cat([whole * factor, gradient[:, -num_statistics:]], dim=1)
        return gradient * factor


_OFFSET = 1e-6  # as torch.nn.utils.clip_grad_norm_ adds it to norms


def check_weight_decay(value: float) -> None:
    """Refuse what is no factor of a penalty in single precision."""
    not_negative("weight_decay", value)
    if value > LARGEST:
        raise refuse("weight_decay", given=value, needed=f"a number <= {LARGEST:.4g}, as float32 holds")
