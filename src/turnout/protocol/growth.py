"""Extend the state of a server to clients that have enrolled."""

from __future__ import annotations

from turnout.core.types import Federation, ServerState
from turnout.pieces.base import Stateful, controls
from turnout.pieces.base.algorithm import Algorithm


def grown(algorithm: Algorithm, state: ServerState, before: Federation, after: Federation) -> ServerState:
    """Return the state with rows for newly enrolled clients, which are those of clients that never took part.

    What all N clients keep in the mean is that of N clients afterwards, of whom the new ones keep zero.

    Raises:
        ConfigurationError: by a piece that was told of a fixed number of clients.
    """
    slots = dict(state.slots)
    for slot, piece in algorithm.pieces().items():
        if isinstance(piece, Stateful):
            slots[slot] = piece.grow(slots[slot], before, after, state.version)
    return ServerState(state.params, state.version, slots | controls.grown(slots, before, after))
