"""Base class of all pieces, and what they see of the algorithm that they are in."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import torch

from turnout.core.registry import Registered

MemoryShapes = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""Shape and type of what each client remembers, by name."""


class Slots(Protocol):
    """The slots of an algorithm, as a piece looks at the others (see `turnout.pieces.base.algorithm.Algorithm`)."""

    @property
    def selection(self) -> Any:
        """Who takes part."""
        ...

    @property
    def local(self) -> Any:
        """What a client does with a task."""
        ...

    @property
    def corrections(self) -> tuple[Any, ...]:
        """What changes the gradients of its steps."""
        ...

    @property
    def measurements(self) -> tuple[Any, ...]:
        """What a client says of the model that it received."""
        ...

    @property
    def guard(self) -> tuple[Any, ...]:
        """What changes a report before it leaves."""
        ...

    @property
    def weighting(self) -> tuple[Any, ...]:
        """How much each report counts."""
        ...

    @property
    def aggregation(self) -> Any:
        """How updates become a direction."""
        ...

    @property
    def server(self) -> Any:
        """How the server steps."""
        ...

    @property
    def personal(self) -> Any:
        """What each client keeps of the model for itself; None where that is nothing."""
        ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """The vectors that every client remembers and whose mean over all the server knows."""
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

    def fits(self, algorithm: Slots) -> None:
        """Refuse an algorithm in which this piece means nothing, with the mathematical reason."""
