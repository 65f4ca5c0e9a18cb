"""Base class of server optimizers."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch

from turnout.core.registry import Family
from turnout.core.types import Report, State
from turnout.pieces.base.stateful import Stateful, WithState
from turnout.pieces.base.weighting import Weights, Whose


class Server(Stateful):
    """Takes the step from the old parameters along the direction."""

    slot: ClassVar[str] = "server"
    family = Family("server optimizer", "server_optimizers", ("turnout.pieces.server_optimizer",))

    @property
    def participation(self) -> Whose:
        """The clients whose participation changes the step, beside the direction: all clients if reports shorten it."""
        return "none" if type(self).shortened is Server.shortened else "others"

    @property
    def of_reports(self) -> bool:
        """True if it reads updates one by one, by `scaled`, so that they cannot be summed as they come in."""
        return type(self).scaled is not Server.scaled

    @property
    def adds_direction(self) -> bool:
        """True if its step is ``x + u`` in every round."""
        return False

    def scaled(self, direction: torch.Tensor, weights: Weights, report: Report) -> torch.Tensor:
        """Return the direction ``[P]`` at the length that the reports suggest; by default as it is."""
        return direction

    def acts_alone(self, version: int) -> bool:
        """Return whether it steps in the round after `version` even without a report; the direction is zero then."""
        return False

    def shortened(self, report: Report, version: int) -> float:
        """Return the share of its step that is taken, in (0, 1]: less than 1 where reports are too stale for all of it."""
        return 1.0

    @abstractmethod
    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return new parameters ``[P]`` and the new state. A step after which either holds NaN or infinity is not taken."""
