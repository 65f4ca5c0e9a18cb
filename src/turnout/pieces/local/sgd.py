"""Local stochastic gradient descent."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, fields
from typing import Any

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Decay
from turnout.core.schedule import Schedule
from turnout.core.types import State
from turnout.pieces.local.solver import Solver
from turnout.pieces.local.update import Update, WeightDecay
from turnout.pieces.local.work import Work


@dataclass(frozen=True)
class SgdSteps(Solver, ABC):
    """Base class of minibatch SGD, and of variants that compute the direction of a step in another way."""

    momentum: Decay = 0.0
    weight_decay: WeightDecay = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_state and not self.momentum:
            raise ConfigurationError(
                "keep_state: SGD without momentum has no state that a client could keep: write momentum=0.9, or "
                "keep_state=False"
            )

    @property
    def update(self) -> Update:
        """The heavy-ball update rule."""
        return HeavyBall(self.weight_decay, self.max_norm, self.momentum)


@dataclass(frozen=True)
class Sgd(SgdSteps, name="sgd"):
    """Train locally by minibatch SGD, with optional momentum and weight decay (FedAU, loop of Algorithm 1).

    A local step from the parameters y is ``v <- momentum * v + g(y) + weight_decay * y``, ``y <- y - lr * v``, where
    g(y) is the minibatch gradient and v is the velocity.

    Options are those of `Solver`, and:

    Args:
        momentum: heavy-ball momentum, in [0, 1). The velocity starts at zero in every round, unless `keep_state` is
            set.
        weight_decay: factor of the L2 penalty, >= 0.

    Raises:
        ConfigurationError: if a number is out of range, or if `keep_state` is set without momentum, where there is no
            state.

    Example:
        >>> Sgd(lr=0.1, steps=5, momentum=0.9).traits.adapts
        True
    """

    @property
    def plain(self) -> dict[str, Any] | None:
        """The options for clients in other languages; None if they vary by client or round, or one is unknown there."""
        if type(self) is not Sgd or isinstance(self.lr, Schedule) or isinstance(self._work, Work):
            return None
        changed = {"accumulate": 1, "max_norm": None, "keep_state": False}
        if any(getattr(self, name) != value for name, value in changed.items()):
            return None
        return {key: value for key, value in vars(self).items() if key not in changed} | {"drop_last": self._drops_last}


def options_of(local: SgdSteps) -> dict[str, Any]:
    """Return the options of plain SGD, by name, from a solver that may have further options."""
    return {field.name: getattr(local, field.name) for field in fields(Sgd)}


@dataclass(frozen=True)
class HeavyBall(Update):
    """Descend the velocity: ``v <- momentum v + g``, ``d = v``; without momentum, the direction d is the gradient g."""

    momentum: float = 0.0

    def init(self, params: torch.Tensor) -> State:
        """Return a velocity of zero, or an empty state without momentum."""
        return (
            {"velocity": torch.zeros(params.shape, dtype=params.dtype, device=params.device)} if self.momentum else {}
        )

    def direction(self, gradient: torch.Tensor, state: State, params: torch.Tensor) -> torch.Tensor:
        """Return the new velocity, or the gradient without momentum."""
        return state["velocity"].mul_(self.momentum).add_(gradient) if self.momentum else gradient

    @property
    def is_plain(self) -> bool:
        """True if there is no momentum, weight decay or clipping."""
        return not self.momentum and not self.weight_decay and self.max_norm is None
