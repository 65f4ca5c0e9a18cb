"""Base class of guards, which change a report before it leaves the client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from turnout.base.piece import MemoryShapes, Piece
from turnout.core.registry import Family
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients


class Guard(Piece, ABC):
    """Change a report before it leaves the client, e.g. by clipping, noise or compression. Guards are chained."""

    slot: ClassVar[str] = "guard"
    family = Family("guard", "guards", ("turnout.pieces.guard",))

    gives: ClassVar[tuple[str, ...]] = ()
    """Names of the entries that it adds to ``report.seen``."""

    prunes: ClassVar[bool] = False
    """True if the guard prunes adapters; it passes the ranks that it may prune to the local steps, in ``task.own``."""

    codes: ClassVar[bool] = False
    """True if codes leave the client in place of vectors."""

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task as B clients receive it, for guards that also change the download.

        `memory` must not be changed.
        """
        return task

    def broadcast_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type in which the model and the other broadcast tensors are sent to clients."""
        return dtype

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

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Update the memory of clients after all guards, by the final reports.

        Args:
            memory: memory of the clients, ``[B, ...]`` by name; changed in place.
            sent: reports as they leave the clients.
            good: whether a report is finite, so that the server will not drop it, bool ``[B, 1]``.
        """
