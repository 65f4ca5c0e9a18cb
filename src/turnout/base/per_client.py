"""Check options that hold one number per client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from turnout.base.piece import Piece
from turnout.core.checks import ConfigurationError, refuse


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
