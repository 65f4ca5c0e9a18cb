"""Base class of guards, which change a report before it leaves the client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from turnout.base.piece import ClientPiece, MemoryShapes
from turnout.core.registry import Family
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients


class Guard(ClientPiece, ABC):
    """Change a report before it leaves the client, e.g. by clipping, noise or compression. Guards are chained."""

    slot: ClassVar[str] = "guard"
    family = Family("guard", "guards", ("turnout.pieces.guard",))

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task as B clients receive it, for guards that also change the download.

        `memory` must not be changed.
        """
        return task

    def memory(self, num_params: int, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...] = ()) -> MemoryShapes:
        """Return the shape and type of each tensor of client memory that it needs, by name; they are initially zero.

        Args:
            num_params: P.
            dtype: type of updates.
            shapes: shapes of the parameters that an update concatenates.
        """
        return {}

    @abstractmethod
    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report as it is sent; the rows ``[B, ...]`` of `memory` may be changed."""


class ChangesDownloadType(ABC):
    """A guard that also compresses the download, by another type of its numbers."""

    @abstractmethod
    def broadcast_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type in which the model and the other broadcast tensors are sent to clients."""
