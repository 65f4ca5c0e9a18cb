"""Base class of server optimizers."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch

from turnout.base.stateful import Stateful, WithState
from turnout.base.weighting import Weights, Whose
from turnout.core.registry import Family
from turnout.core.types import Report, State


class Server(Stateful):
    """Take the server's step from the old parameters along the direction."""

    slot: ClassVar[str] = "server"
    family = Family("server optimizer", "server_optimizers", ("turnout.pieces.server_optimizer",))

    @property
    def participation(self) -> Whose:
        """The clients whose participation changes the step beside the direction.

        They are ``"others"`` if reports can shorten the step (`shortened`), and else ``"none"``.
        """
        return "none" if type(self).shortened is Server.shortened else "others"

    @property
    def of_reports(self) -> bool:
        """True if it reads single updates (in `scaled`), so that they cannot be summed as they arrive."""
        return type(self).scaled is not Server.scaled

    @property
    def adds_direction(self) -> bool:
        """True if the step is ``x + u`` in every round, with the model x and the direction u."""
        return False

    def scaled(self, direction: torch.Tensor, weights: Weights, report: Report) -> torch.Tensor:
        """Return the direction ``[P]`` at a length that depends on the reports; by default, unchanged."""
        return direction

    def acts_alone(self, version: int) -> bool:
        """Return whether it takes a step of direction zero in the round after `version` if there is no report."""
        return False

    def shortened(self, report: Report, version: int) -> float:
        """Return the share of the step that is taken, in (0, 1].

        It is less than 1 if the reports are too stale for a full step.
        """
        return 1.0

    @abstractmethod
    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the new parameters ``[P]`` and the new state.

        The step is discarded if either holds NaN or infinity.
        """
