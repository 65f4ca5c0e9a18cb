"""Base class of personalizations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import nn

from turnout.core.registry import Family
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base.local import Correction, Local
from turnout.pieces.base.piece import Piece


class Personalization(Piece, ABC):
    """Parameters that clients keep for themselves: their row ``personal`` of client memory, which never leaves them."""

    slot: ClassVar[str] = "personal"
    family = Family("personalization", "personalizations", ("turnout.pieces.personalization",))

    outer_lr: float = 1.0
    """Factor of the update of the row."""

    adaptation_steps: int | tuple[int, ...] = 5
    """Local steps of a client that never trained before it is evaluated; with several numbers, it is evaluated for each."""

    @property
    def columns(self) -> tuple[Correction, ...]:
        """Corrections of local steps, behind all others."""
        return ()

    @abstractmethod
    def chosen(self, module: nn.Module) -> frozenset[str]:
        """Return the names of the parameters that are not shared."""

    @abstractmethod
    def first(self, initial: torch.Tensor, num_shared: int) -> torch.Tensor:
        """Return the first row of every client, from the model's first parameters ``[P]``."""

    @abstractmethod
    def join(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return what each client trains and reports on, from what it received, ``[P_u]`` or ``[B, P_u]``, and its row."""

    @abstractmethod
    def serving(self, params: torch.Tensor, memory: State) -> torch.Tensor:
        """Return the model that each client uses, ``[B, P]``, from the shared parameters and its row."""

    @abstractmethod
    def newcomer(self, params: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """Return the model ``[P]`` that a client who never trained begins with."""

    @abstractmethod
    def split(
        self, report: Report, num_shared: int, start: torch.Tensor, row: torch.Tensor
    ) -> tuple[Report, torch.Tensor | None]:
        """Return the report without anything personal, and the update of the row, if it is in the report.

        Args:
            report: of what `join` made.
            num_shared: parameters that are shared.
            start: what `join` made, ``[B, P]``, or ``[P]`` for all.
            row: of each client before the task, ``[B, P_v]``.
        """

    def beside(
        self, local: Local, task: Task, memory: State, clients: Clients, corrections: tuple[Correction, ...]
    ) -> torch.Tensor | None:
        """Return the update of the row by training that the report does not depend on; leaves `memory` unchanged."""
        return None

    @abstractmethod
    def adapting(self, local: Local, steps: int) -> Local:
        """Return the rule by which a client that never trained fits its personal parameters in a number of steps."""
