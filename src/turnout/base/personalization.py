"""Base class of personalizations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import nn

from turnout.base.local import Correction, Local
from turnout.base.piece import Piece
from turnout.core.registry import Family
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients


class Personalization(Piece, ABC):
    """Keep parameters on each client: the row ``personal`` of client memory, which never leaves the client."""

    slot: ClassVar[str] = "personal"
    family = Family("personalization", "personalizations", ("turnout.pieces.personalization",))

    adaptation_steps: int | tuple[int, ...] = 5
    """Local steps that a client takes before its evaluation if it never trained.

    With several numbers, it is evaluated after each of them.
    """

    @abstractmethod
    def chosen(self, module: nn.Module) -> frozenset[str]:
        """Return the names of the parameters that are not shared."""

    @abstractmethod
    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the initial personal row of every client, from the model's initial parameters ``[P]``."""

    @abstractmethod
    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the parameters that each client trains, from the received ones and its personal row.

        The received parameters are ``[P_u]``, or ``[B, P_u]`` if clients received different models.
        """

    @abstractmethod
    def serving(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the model that each client uses, ``[B, P]``, from the shared parameters and its personal row."""

    @abstractmethod
    def newcomer(self, params: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """Return the initial model ``[P]`` of a client that never trained."""

    @abstractmethod
    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor | None]:
        """Return the report without personal parameters, and the update of the personal row, if the report contains it.

        Args:
            report: report on the parameters that `join` returned.
            num_shared: number of shared parameters, P_u.
            start: parameters that `join` returned, ``[B, P]``, or ``[P]`` for all clients.
            row: personal row of each client before the task, ``[B, P_v]``.
        """

    @abstractmethod
    def adapting(self, local: Local, steps: int) -> Local:
        """Return the rule by which a client that never trained fits its personal parameters, in a number of steps."""


class CorrectsColumns(ABC):
    """A personalization that changes the steps of the personal or the shared columns."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Correction, ...]:
        """Corrections of local steps, after all other corrections."""


class TrainsBeside(ABC):
    """A personalization that trains the personal row beside the model whose update is reported."""

    @abstractmethod
    def beside(
        self, local: Local, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]
    ) -> torch.Tensor:
        """Return the update of the personal row, on which the report does not depend; `memory` must not be changed."""
