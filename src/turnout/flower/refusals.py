"""Say which algorithms run between the nodes of a Flower grid, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from turnout.core.checks import ConfigurationError
from turnout.pieces.base import InformsClients
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.local.solver import Solver
from turnout.protocol.fits import check_machines

LOSSES = ("start_loss", "appeal_gap")
"""What follows from the loss of the received model, which a ClientApp says when it evaluates."""


def refusal(algorithm: Algorithm) -> str | None:
    """Return why an algorithm cannot run with a ClientApp as it is; None where it can.

    A ClientApp sends its parameters after training, its number of examples, and metrics.

    >>> import turnout as to
    >>> refusal(to.fedau()) is None
    True
    >>> refusal(to.folb())
    'StartGradient needs start_gradient of every client, and a ClientApp sends parameters and metrics alone'
    """
    try:
        check_machines(algorithm)
    except ConfigurationError as error:
        return str(error)
    return next(_reasons(algorithm), None)


def _reasons(algorithm: Algorithm) -> Iterator[str]:
    """Yield what of an algorithm a ClientApp does not do."""
    if algorithm.personal is not None:
        yield f"{_name(algorithm.personal)} keeps a part of the model with every client, and a ClientApp sends all of it"
    for piece in algorithm.corrections:
        text = f"{_name(piece)} changes every local step, and these are the ClientApp's"
        if names := ", ".join([*piece.keeps, *piece.memory(1, torch.float32)]):
            yield f"{text}, by {names}, which clients keep"
        yield f"{text}: write it into its training loop, and leave it out here"
    if Solver.family.name_of(type(algorithm.local)) is None:
        yield f"the method is what {_name(algorithm.local)} does at the clients, and a ClientApp trains by its own loop"
    for piece in algorithm.weighting:
        if isinstance(piece, InformsClients):
            yield f"{_name(piece)} has the server say how much work a client does, and a ClientApp decides that"
    yield from _unsent(algorithm)


def _unsent(algorithm: Algorithm) -> Iterator[str]:
    """Yield what of an algorithm the replies of a ClientApp lack."""
    for piece in (*algorithm.measurements, *algorithm.selection.measurements):
        if names := [name for name in piece.gives if name not in LOSSES]:
            given = ", ".join(names)
            yield f"{_name(piece)} needs {given} of every client, and a ClientApp sends parameters and metrics alone"
        if getattr(piece, "tuning", None) is not None:
            yield f"{_name(piece)}(tuning=...) tunes the model before it is scored, and a ClientApp scores it as it comes"
    if algorithm.selection.measurements:
        yield f"{_name(algorithm.selection)} asks clients for measurements before it chooses among them"
    if phases := algorithm.aggregation.phases:
        yield f"{_name(algorithm.aggregation)} asks clients for more after training ({', '.join(phases)})"
    for piece in algorithm.guard:
        yield f"{_name(piece)} changes updates before they leave a client, and a ClientApp sends them as they are"


def _name(piece: object) -> str:
    return type(piece).__name__
