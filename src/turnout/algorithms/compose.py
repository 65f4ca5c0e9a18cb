"""Compose an algorithm from pieces in any order, with the defaults of federated averaging for other slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from turnout.base import (
    Aggregation,
    Correction,
    Guard,
    Local,
    Measurement,
    Normalizer,
    Personalization,
    Piece,
    Selection,
    Server,
    Weighting,
)
from turnout.base.algorithm import Algorithm
from turnout.core.checks import ConfigurationError, refuse, shown
from turnout.core.schedule import Schedule
from turnout.pieces.aggregation import WeightedSum
from turnout.pieces.local import Sgd
from turnout.pieces.selection import AllAvailable, Uniform
from turnout.pieces.selection.fixed_size import Size
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.pieces.weighting import DivideByParticipants

Kind = TypeVar("Kind", bound=Piece)


def _all(kind: type[Kind], pieces: Sequence[Piece]) -> tuple[Kind, ...]:
    """Return the pieces of a kind, in order."""
    return tuple(piece for piece in pieces if isinstance(piece, kind))


def _only(kind: type[Kind], pieces: Sequence[Piece]) -> Kind | None:
    """Return the piece of a slot that holds one, or None; raise an error if there are several."""
    matches = _all(kind, pieces)
    if len(matches) > 1:
        names = " and ".join(type(piece).__name__ for piece in matches)
        raise ConfigurationError(f"{names} are both for the slot {kind.slot!r}, which holds one: keep one of them")
    return matches[0] if matches else None


def _check_pieces(pieces: Sequence[object], also: object, name: str) -> None:
    """Raise an error for objects that are no pieces."""
    if not isinstance(also, tuple | list):
        raise refuse("also", given=also, needed="a tuple of pieces", instead="Write also=(piece,)")
    for piece in (*pieces, *also):
        if not isinstance(piece, Piece):
            kind = piece if isinstance(piece, type) else type(piece)
            hint = f"{kind.__name__}()" if issubclass(kind, Piece) else "to.Sgd(lr=0.1) or to.AdamW(lr=0.001)"
            function = "compose" if name == "custom" else name
            raise ConfigurationError(f"{function}() takes pieces of an algorithm, got {shown(piece)}; write {hint}")


def _weighting(pieces: Sequence[Piece]) -> tuple[Weighting, ...]:
    """Return the chain of weightings, which ends in a normalizer."""
    chain = _all(Weighting, pieces)
    if chain and not any(isinstance(piece, Normalizer) for piece in chain):
        written = ", ".join(type(piece).__name__ for piece in chain)
        raise ConfigurationError(
            f"the weights of {written} need a normalizer after them: DivideByClients (FedAU), DivideBySum (FedAvg by "
            "examples) or DivideByParticipants"
        )
    return chain or (DivideByParticipants(),)


_HOLD_ONE = (Selection, Normalizer, Aggregation, Server)
"""Slots that hold one piece."""


def _in_place_of(pieces: Sequence[Piece], also: Sequence[Piece], name: str) -> tuple[Piece, ...]:
    """Return `also` before the pieces of a recipe, without those in slots of one piece that `also` fills.

    Raises:
        ConfigurationError: if the replaced piece defines the recipe, or if an option of it would be ignored.
    """
    filled = tuple(kind for kind in _HOLD_ONE if _all(kind, also))
    for old in _all(Aggregation, pieces) + _all(Server, pieces):
        if isinstance(old, filled):
            _refuse_loss(old, next(type(piece).__name__ for piece in also if piece.slot == old.slot), name)
    rest = (piece for piece in pieces if not isinstance(piece, filled))
    # A chain of weightings ends in its normalizer.
    return (*(piece for piece in also if not isinstance(piece, Normalizer)), *rest, *_all(Normalizer, also))


def _refuse_loss(old: Piece, new: str, name: str) -> None:
    """Raise an error if the replaced piece `old` defines its recipe, or has a step size that would be ignored."""
    if not isinstance(old, ServerSgd):
        keeps = new == "PrivateSum" and getattr(old, "client_rows", ())
        why = "; what it stores of a client enters every later step, so the noise of a single step does not protect it"
        raise ConfigurationError(
            f"{name} is defined by {type(old).__name__}, which {new} would replace: leave one out, or use {new} with "
            f"another algorithm{why if keeps else ''}"
        )
    if old.lr != 1.0:
        raise ConfigurationError(
            f"{new} would replace the server's step of {name} and ignore its step size {old.lr}: leave this at 1.0 and "
            f"write lr=... in {new}"
        )


def compose(
    *pieces: Piece,
    server_lr: float | Schedule | None = None,
    cohort_size: Size = None,
    also: Sequence[Piece] = (),
    name: str = "custom",
) -> Algorithm:
    """Compose an algorithm from pieces.

    Each piece has a slot. Pieces of a chain (corrections of local training, guards, weightings) act in the given order.
    The defaults are those of federated averaging over the participants: all available clients take part, local training
    is SGD, updates are averaged with equal weights, and the server's step size is 1.

    Example:
        FedAU's weights with cohorts of at most 10 clients:

        >>> from turnout.pieces.selection import Uniform
        >>> from turnout.pieces.weighting import DivideByClients, Participation
        >>> algorithm = compose(Uniform(10), Sgd(lr=0.1, steps=5), Participation(cutoff=50), DivideByClients())
        >>> algorithm.aggregation
        WeightedSum()

    Args:
        pieces: pieces that fill the slots.
        server_lr: step size of the plain server step; None leaves the server optimizer to the pieces.
        cohort_size: number or share of the clients of a round, drawn uniformly without replacement, as `Uniform` takes them;
            None leaves the selection to the pieces.
        also: further pieces, as passed to a recipe. In a chain they act first. A selection, a normalizer, an
            aggregation or a server optimizer among them replaces that of the recipe.
        name: name of the algorithm in reports.

    Raises:
        ConfigurationError: if a slot of one piece gets two, if an object is no piece, or if pieces do not fit together.
    """
    _check_pieces(pieces, also, name)
    drawn = () if cohort_size is None else (Uniform(cohort_size),)
    plain = () if server_lr is None else (ServerSgd(server_lr),)
    pieces = _in_place_of((*drawn, *pieces, *plain), also, name)
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
