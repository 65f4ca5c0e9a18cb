"""Base class of server optimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from turnout.base.piece import Stateful
from turnout.base.weighting import Weights
from turnout.core.registry import Family
from turnout.core.schedule import Schedule
from turnout.core.types import Report, State, WithState


class Server(Stateful):
    """Take the server's step from the old parameters along the direction."""

    slot: ClassVar[str] = "server"
    family = Family("server optimizer", "server_optimizers", ("turnout.pieces.server_optimizer",))

    @abstractmethod
    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the new parameters ``[P]`` and the new state.

        The step is discarded if either holds NaN or infinity.
        """


class AddsDirection(ABC):
    """A server optimizer whose step is ``x + lr u`` in every round."""

    lr: float | Schedule
    """Step size of the server."""


class ScalesByReports(ABC):
    """A server optimizer that reads single updates, so that they cannot be summed as they arrive."""

    @abstractmethod
    def scaled(self, direction: torch.Tensor, weights: Weights, report: Report) -> torch.Tensor:
        """Return the direction ``[P]`` at a length that depends on the reports."""


class ShortensSteps(ABC):
    """A server optimizer whose step may be shorter if reports are stale, and so depends on who takes part when."""

    @abstractmethod
    def shortened(self, report: Report, version: int) -> float:
        """Return the share of the step that is taken, in (0, 1]; less than 1 if reports are too stale for a full step."""

    @property
    def shortens(self) -> bool:
        """True unless every step is a full one."""
        return True


class StepsAlone(ABC):
    """A server optimizer that steps in some rounds without reports."""

    @abstractmethod
    def acts_alone(self, version: int) -> bool:
        """Return whether it takes a step of direction zero in the round after `version` if there is no report."""
