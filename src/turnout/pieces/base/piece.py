"""Base class of all pieces, and the view they have of their algorithm."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import torch

from turnout.core.registry import Registered

MemoryShapes = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""Shape and type of each tensor of client memory, by name."""


class Slots(Protocol):
    """The slots of an algorithm, as its pieces see them (see `turnout.pieces.base.algorithm.Algorithm`)."""

    @property
    def selection(self) -> Any:
        """The selection."""
        ...

    @property
    def local(self) -> Any:
        """The local rule."""
        ...

    @property
    def corrections(self) -> tuple[Any, ...]:
        """Corrections of the gradients of local steps."""
        ...

    @property
    def measurements(self) -> tuple[Any, ...]:
        """Measurements of the received model and of training."""
        ...

    @property
    def guard(self) -> tuple[Any, ...]:
        """Guards, which change a report before it is sent."""
        ...

    @property
    def weighting(self) -> tuple[Any, ...]:
        """The chain of weightings."""
        ...

    @property
    def aggregation(self) -> Any:
        """The aggregation."""
        ...

    @property
    def server(self) -> Any:
        """The server optimizer."""
        ...

    @property
    def personal(self) -> Any:
        """The personalization; None where all parameters are shared."""
        ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """Names of vectors that every client remembers and whose mean over all clients the server knows."""
        ...


class Piece(Registered):
    """Something that fits into a slot: a frozen dataclass of plain options."""

    slot: ClassVar[str]

    needs_rounds: ClassVar[str | None] = None
    """Why this piece needs synchronous rounds, in which all reports of a step are of one version; None where it does not.

    A pace without rounds is refused with this reason, in which ``{piece}`` and ``{pace}`` stand for the two classes; without
    them the message begins with the name of the piece."""

    needs_simulation: ClassVar[str | None] = None
    """Why this piece means nothing between real machines; None where it does."""

    per_client: ClassVar[tuple[str, ...]] = ()
    """Names of options that hold a number for each client, or None: numbers for another number of clients are refused, and
    clients who enrol during a run."""

    def fits(self, algorithm: Slots) -> None:
        """Refuse an algorithm in which this piece means nothing, with the mathematical reason."""
