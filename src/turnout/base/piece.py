"""Base classes of all pieces and of those with a state, and the view of an algorithm that pieces have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, refuse
from turnout.core.registry import Registered
from turnout.core.types import Federation, Report, State

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


class Stateful(Piece, ABC):
    """Base class of pieces of the server's step that carry a state from round to round."""

    def init(self, federation: Federation) -> State:
        """Return the state before the first round."""
        return {}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Return the state after clients enrolled during a run.

        By default, tensors with one row per client are extended by initial rows, as `init` returns them. Pieces
        override the method if initial rows depend on the time of enrollment, or if other tensors depend on N.

        Args:
            state: state for the clients of `before`.
            before: the federation before the enrollment.
            after: the federation after the enrollment; new clients have the highest numbers.
            version: number of server steps so far.
        """
        one, two = (self.init(replace(after, num_clients=few, rates=None)) for few in (1, 2)) if state else ({}, {})
        by_client = [name for name in state if one[name].shape[:1] != two[name].shape[:1]]
        if not by_client:
            return state
        fresh = self.init(replace(after, num_clients=after.num_clients - before.num_clients, rates=None))
        return state | {name: torch.cat([state[name], fresh[name]]) for name in by_client}

    client_rows: ClassVar[tuple[str, ...] | None] = None
    """Names of state tensors with one row per client, where `apply` changes only reporting clients' rows in place.

    It is ``()`` if `apply` returns new tensors and changes no state tensor in place, and None if nothing is known. The
    server takes a step before it knows whether the reports are finite, and undoes it if they are not, if the step
    overflows or if a piece raises an error. For that purpose it copies these rows, and the whole state of a piece that
    declares nothing.
    """


class MutatesRows(ABC):
    """A piece that changes rows of its state in place, and these are not those of the reporting clients."""

    @abstractmethod
    def mutated_rows(self, report: Report, state: State) -> dict[str, np.ndarray] | None:
        """Return the rows that `apply` changes in place, int64 by tensor name; None if they are unknown."""


def mutated_rows(piece: Stateful, report: Report, state: State) -> dict[str, np.ndarray] | None:
    """Return the rows that `apply` of a piece changes in place, int64 by tensor name; None if they are unknown."""
    if isinstance(piece, MutatesRows):
        return piece.mutated_rows(report, state)
    known = {name: report.client for name in piece.client_rows or () if name in state}
    return known if known or not state or piece.client_rows == () else None


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


def _check_shares(name: str, shares: tuple[float, ...]) -> None:
    """Check that shares of clients in the objective are positive and sum to 1."""
    if not shares or not min(shares) > 0 or not abs(sum(shares) - 1) <= 1e-6:
        raise refuse(
            name, given=shares, needed="a positive number for each client, which sum to 1", instead="None is 1/N"
        )


Shares = Annotated[tuple[float, ...], _check_shares]
"""Positive numbers for all clients, which sum to 1."""


def check_lengths(piece: Piece, num_clients: int) -> None:
    """Raise an error if options of a piece hold numbers for another number of clients."""
    for name, values in _given(piece):
        if len(values) != num_clients:
            raise ConfigurationError(f"{name} has a number for {len(values)} clients, but there are {num_clients}")


def refuse_new_clients(piece: Piece) -> None:
    """Raise an error if an option of a piece has no number for clients that enroll during a run."""
    for name, values in _given(piece):
        raise ConfigurationError(
            f"{name} has a number for each of {len(values)} clients, and more have enrolled: write {name}=None if clients "
            "may enroll at any time"
        )


def _given(piece: Piece) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the names and values of options that hold one number per client."""
    yield from ((name, values) for name in piece.per_client if (values := getattr(piece, name)) is not None)
