"""The server's plain step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.schedule import Schedule, check_step_size, step_size_at
from turnout.core.types import State
from turnout.pieces.base import Server, WithState


@dataclass(frozen=True)
class ServerSgd(Server, name="sgd"):
    """``x_{t+1} = x_t + eta u``.

    Args:
        lr: the server's step size (eta), or a `Schedule` of it by round.

    Example:
        >>> from turnout.pieces.base.trial import step
        >>> step(ServerSgd(lr=0.5), [1.0, -2.0])
        [[0.5, -1.0]]
    """

    lr: float | Schedule = 1.0

    def __post_init__(self) -> None:
        check_step_size("server_lr", self.lr)

    @property
    def adds_direction(self) -> bool:
        """True if its step is ``x + u`` in every round."""
        return self.lr == 1.0

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Step along the direction."""
        return params.add(direction, alpha=step_size_at(self.lr, version)), state
