"""Fill the slots of an algorithm with pieces, in any order, with the defaults of federated averaging for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from turnout.core.checks import ConfigurationError
from turnout.pieces.aggregation import WeightedSum
from turnout.pieces.base import (
    Aggregation,
    Correction,
    Guard,
    Local,
    Measurement,
    Normaliser,
    Personalization,
    Piece,
    Selection,
    Server,
    Weighting,
)
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.local import Sgd
from turnout.pieces.selection import AllAvailable
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants

Kind = TypeVar("Kind", bound=Piece)


def _all(kind: type[Kind], pieces: Sequence[Piece]) -> tuple[Kind, ...]:
    """Return the pieces of a chain, in order."""
    return tuple(piece for piece in pieces if isinstance(piece, kind))


def _only(kind: type[Kind], pieces: Sequence[Piece]) -> Kind | None:
    """Return the piece of a slot that holds one, or None."""
    matches = _all(kind, pieces)
    if len(matches) > 1:
        names = " and ".join(type(piece).__name__ for piece in matches)
        raise ConfigurationError(f"{names} are both for the slot {kind.slot!r}, which holds one: keep one of them")
    return matches[0] if matches else None


def _check_pieces(pieces: Sequence[object]) -> None:
    """Refuse objects other than pieces."""
    for piece in pieces:
        if not isinstance(piece, Piece):
            hint = f"; write {piece.__name__}()" if isinstance(piece, type) else ""
            raise ConfigurationError(f"compose() takes pieces of an algorithm, got {piece!r}{hint}")


def _weighting(pieces: Sequence[Piece]) -> tuple[Weighting, ...]:
    """Return the chain of weightings, which ends in a normaliser."""
    chain = _all(Weighting, pieces)
    if chain and not any(isinstance(piece, Normaliser) for piece in chain):
        written = ", ".join(type(piece).__name__ for piece in chain)
        raise ConfigurationError(
            f"the weights of {written} need a normaliser behind them: DivideByClients (FedAU), DivideBySum (FedAvg by "
            "examples) or DivideByParticipants"
        )
    return chain or (DivideByParticipants(),)


_HOLD_ONE = (Selection, Normaliser, Aggregation, Server)
"""Slots that hold one piece."""


def _in_place_of(pieces: Sequence[Piece], also: Sequence[Piece], name: str) -> tuple[Piece, ...]:
    """Put `also` before a recipe's pieces, without those of a slot that holds one and that `also` fills.

    Raises:
        ConfigurationError: where the replaced piece defines the recipe, or an option of it would be ignored.
    """
    filled = tuple(kind for kind in _HOLD_ONE if _all(kind, also))
    for old in _all(Aggregation, pieces) + _all(Server, pieces):
        if isinstance(old, filled):
            _refuse_loss(old, next(type(piece).__name__ for piece in also if piece.slot == old.slot), name)
    rest = (piece for piece in pieces if not isinstance(piece, filled))
    # A chain of weightings ends in its normaliser.
    return (*(piece for piece in also if not isinstance(piece, Normaliser)), *rest, *_all(Normaliser, also))


def _refuse_loss(old: Piece, new: str, name: str) -> None:
    """Refuse to replace a piece that defines its recipe."""
    if not isinstance(old, ServerSgd):
        keeps = new == "PrivateSum" and getattr(old, "client_rows", ())
        why = "; what it keeps of a client goes into every later step, so that the noise of one does not bound it"
        raise ConfigurationError(
            f"{name} is what it is by {type(old).__name__}, and {new} would go in its place: leave one out, or use "
            f"{new} with another algorithm{why if keeps else ''}"
        )
    if old.lr != 1.0:
        raise ConfigurationError(
            f"the server's step of {name} has a size of its own, {old.lr}, which {new} would not know of: leave it at "
            f"1.0 and give {new} its lr"
        )


def compose(*pieces: Piece, also: Sequence[Piece] = (), name: str = "custom") -> Algorithm:
    """Make an algorithm of pieces.

    A piece knows its slot; pieces of a chain (corrections of the local rule, guards, weightings) act in the order given. The
    defaults are those of federated averaging over the participants: all available clients take part, local SGD, the plain
    mean, a server step of 1.

    Example:
        FedAU's weights with cohorts of at most 10 clients:

        >>> from turnout.pieces.selection import Uniform
        >>> from turnout.pieces.weighting import DivideByClients, Participation
        >>> algorithm = compose(Uniform(10), Sgd(lr=0.1, steps=5), Participation(cutoff=50), DivideByClients())
        >>> algorithm.aggregation
        WeightedSum()

    Args:
        pieces: what fills the slots.
        also: further pieces, which a recipe was given. In a chain they act first; a selection, an aggregation or a server
            optimiser among them goes in the place of the recipe's.
        name: what reports call it.

    Raises:
        ConfigurationError: for two pieces where one belongs, something that is no piece, or pieces that do not fit.
    """
    _check_pieces((*pieces, *also))
    pieces = _in_place_of(pieces, also, name)
    return Algorithm(
        name=name,
        selection=_only(Selection, pieces) or AllAvailable(),
        local=_only(Local, pieces) or Sgd(),
        corrections=_all(Correction, pieces),
        measurements=_all(Measurement, pieces),
        guard=_all(Guard, pieces),
        weighting=_weighting(pieces),
        aggregation=_only(Aggregation, pieces) or WeightedSum(),
        server=_only(Server, pieces) or ServerSgd(),
        personal=_only(Personalization, pieces),
    )
