"""Base class of all pieces, and the view of an algorithm that pieces have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.registry import Registered
from turnout.core.types import Report, State

MemoryShapes = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""Shape and type of each tensor of client memory, by name."""


@dataclass(frozen=True)
class Slots(ABC):
    """The slots of an algorithm, as its pieces see them; `turnout.base.algorithm.Algorithm` has their types."""

    name: str
    selection: Any
    local: Any
    corrections: tuple[Any, ...]
    measurements: tuple[Any, ...]
    guard: tuple[Any, ...]
    weighting: tuple[Any, ...]
    aggregation: Any
    server: Any
    personal: Any

    @property
    @abstractmethod
    def keeping(self) -> tuple[Any, ...]:
        """Corrections that keep vectors in the memory of every client."""

    @property
    @abstractmethod
    def keeps(self) -> tuple[str, ...]:
        """Names of vectors in the memory of every client whose mean over all clients the server maintains."""


class Piece(Registered):
    """Fill a slot of an algorithm. A piece is a frozen dataclass of plain options."""

    slot: ClassVar[str]

    needs_rounds: ClassVar[str | None] = None
    """The reason why this piece needs synchronous rounds; None if it does not.

    In a synchronous round, all reports of a step have the same version. A pace without rounds is refused with this
    reason. In it, ``{piece}`` and ``{pace}`` stand for the names of the two classes; without them, the message begins
    with the name of the piece.
    """

    needs_simulation: ClassVar[str | None] = None
    """The reason why this piece cannot be used between real machines; None if it can."""

    trusts: ClassVar[tuple[str, str] | None] = None
    """An option of a server, and the harm that one dishonest report does through this piece unless it is set."""

    gives: ClassVar[tuple[str, ...]] = ()
    """Names of the entries of ``report.seen`` that it adds on the client."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Names of the entries of ``report.seen`` that it reads on the server."""

    per_client: ClassVar[tuple[str, ...]] = ()
    """Names of options that hold one number per client, or None.

    Numbers for another number of clients are refused, and so are clients that enroll during a run.
    """

    def fits(self, algorithm: Slots) -> None:
        """Raise an error, with the mathematical reason, if the piece cannot be used in this algorithm."""


class ClientPiece(Piece):
    """Base class of pieces that change what a client computes or sends, and may have memory there."""

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Update the memory of clients by the reports that were sent, after all guards.

        Args:
            memory: memory of the clients, ``[B, ...]`` by name; changed in place.
            sent: reports as they leave the clients.
            good: whether a report is finite, so that the server will not drop it, bool ``[B, 1]``.
        """


def check_tensor(piece: Piece, value: torch.Tensor, shape: tuple[int, ...], what: str, meaning: str) -> None:
    """Raise an error unless a piece made a tensor of a shape; one of another shape would be broadcast.

    Args:
        piece: the piece.
        value: what it made.
        shape: the shape.
        what: the noun for it.
        meaning: an apposition that explains the shape.
    """
    if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
        made = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"type {type(value).__name__}"
        raise ConfigurationError(
            f"{type(piece).__name__} made {what} of {made}: needed a tensor of shape {shape}, {meaning}"
        )
