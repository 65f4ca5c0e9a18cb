"""The plain step of the server."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import AddsDirection, Server, WithState
from turnout.core.schedule import Schedule, check_step_size, step_size_at
from turnout.core.types import State


@dataclass(frozen=True)
class ServerSgd(Server, AddsDirection, name="sgd"):
    """Take a step of constant or scheduled size along the aggregated update.

    ``x_{t+1} = x_t + eta u``, where x_t is the model, u is the direction, i.e. the aggregated update, and eta is the
    step size. With eta = 1, weights that sum to 1 make the new model the weighted mean of the clients' models.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.

    Raises:
        ConfigurationError: if `lr` is not positive.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerSgd(lr=0.5), [1.0, -2.0])
        [[0.5, -1.0]]
    """

    lr: float | Schedule = 1.0

    def __post_init__(self) -> None:
        check_step_size("server_lr", self.lr)

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model after a step along the direction, and the state."""
        return params.add(direction, alpha=step_size_at(self.lr, version)), state
