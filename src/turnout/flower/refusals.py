"""Say which algorithms run between the nodes of a Flower grid, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from turnout.core.checks import ConfigurationError
from turnout.pieces.base import Aggregation, InformsClients
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.local.measurements import Inexactness
from turnout.pieces.local.solver import Solver
from turnout.protocol.fits import check_machines

LOSSES = ("start_loss", "start_loss_rms", "appeal_gap")
"""What follows from the metrics that a ClientApp sends when it evaluates the received model."""


def refusal(algorithm: Algorithm, mod: bool = False) -> str | None:
    """Return why an algorithm cannot run with a ClientApp; None where it can.

    An unchanged ClientApp sends its parameters after training, its number of examples, and metrics. With `mod`, it keeps a
    memory, corrects gradients before each step of its optimizer, and changes its update before it is sent.

    >>> import turnout as to
    >>> refusal(to.fedau()) is None
    True
    >>> refusal(to.folb())
    'StartGradient needs start_gradient of every client, and a ClientApp sends parameters and metrics alone'
    >>> refusal(to.folb(), mod=True) is None
    True
    """
    try:
        check_machines(algorithm)
    except ConfigurationError as error:
        return str(error)
    return next(_reasons(algorithm), None) or (None if mod else next(_without_mod(algorithm), None))


def _reasons(algorithm: Algorithm) -> Iterator[str]:
    """Yield what of an algorithm a ClientApp does not do, with the mod or without."""
    if Solver.family.name_of(type(algorithm.local)) is None:
        yield f"the method is what {_name(algorithm.local)} does at the clients, and a ClientApp trains by its own loop"
    for piece in algorithm.weighting:
        if isinstance(piece, InformsClients):
            yield f"{_name(piece)} has the server say how much work a client does, and a ClientApp decides that"
    for piece in (*algorithm.measurements, *algorithm.selection.measurements):
        if isinstance(piece, Inexactness):
            yield f"{_name(piece)} needs a gradient after training, and a ClientApp computes none then"
        if getattr(piece, "tuning", None) is not None:
            yield f"{_name(piece)}(tuning=...) tunes the model before it is scored, and a ClientApp scores it as it comes"
    for piece in algorithm.corrections:
        if piece.of_minibatch:
            yield f"{_name(piece)} is a term of the loss on each minibatch, and a ClientApp has a loss of its own"
    aggregation = algorithm.aggregation
    if type(aggregation).base_offset is not Aggregation.base_offset:
        yield f"{_name(aggregation)} multiplies the factors of adapters, and arrays do not say which of them belong together"
    if phases := aggregation.phases:
        yield f"{_name(aggregation)} asks clients for more after training ({', '.join(phases)})"


def _without_mod(algorithm: Algorithm) -> Iterator[str]:
    """Yield what of an algorithm needs the mod."""
    if algorithm.personal is not None:
        yield f"{_name(algorithm.personal)} keeps a part of the model with every client, and a ClientApp sends all of it"
    for piece in algorithm.corrections:
        text = f"{_name(piece)} changes every local step, and these are the ClientApp's"
        names = ", ".join([*piece.keeps, *piece.memory(1, torch.float32)])
        yield f"{text}, by {names}, which clients keep" if names else text
    for piece in (*algorithm.measurements, *algorithm.selection.measurements):
        if names := ", ".join(name for name in piece.gives if name not in LOSSES):
            yield f"{_name(piece)} needs {names} of every client, and a ClientApp sends parameters and metrics alone"
    for piece in algorithm.guard:
        yield f"{_name(piece)} changes updates before they leave a client, and a ClientApp sends them as they are"


def _name(piece: object) -> str:
    return type(piece).__name__
