"""Base class of guards, which change a report before it leaves the client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from turnout.core.registry import Family
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base.piece import MemoryShapes, Piece


class Guard(Piece, ABC):
    """Changes a report before it leaves the client (clipping, noise, compression); chained."""

    slot: ClassVar[str] = "guard"
    family = Family("guard", "guards", ("turnout.pieces.guard",))

    gives: ClassVar[tuple[str, ...]] = ()
    """What it adds to ``report.seen``, by name."""

    prunes: ClassVar[bool] = False
    """True if the guard passes the tails of adapters that it may prune to local steps, in ``task.own``."""

    codes: ClassVar[bool] = False
    """True if what leaves the client is a code of the vectors in their place."""

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task as it arrives at B clients, where the guard is about both ways; `memory` is only read."""
        return task

    def broadcast_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type in which the model, and what else is broadcast, goes to clients, where they keep another."""
        return dtype

    def memory(self, num_params: int, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...] = ()) -> MemoryShapes:
        """Return what each client remembers for it: shape and type by name, zero at first.

        Args:
            num_params: P.
            dtype: of updates.
            shapes: of the parameters that updates hold one after the other.
        """
        return {}

    @abstractmethod
    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report as it is sent; may change what clients remember, rows ``[B, ...]`` of `memory`."""

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Move what clients remember by what was sent in the end, after all guards.

        Args:
            memory: rows ``[B, ...]`` by name, to be changed.
            sent: the reports as they leave.
            good: which of them the server will not drop, bool ``[B, 1]``.
        """
