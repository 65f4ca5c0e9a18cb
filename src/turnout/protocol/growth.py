"""Extend the state of a server to newly enrolled clients."""

from __future__ import annotations

from turnout.base import Stateful, controls
from turnout.base.algorithm import Algorithm
from turnout.base.per_client import refuse_new_clients
from turnout.core.types import Federation, ServerState


def grown(algorithm: Algorithm, state: ServerState, before: Federation, after: Federation) -> ServerState:
    """Return the state with rows for newly enrolled clients, as for clients that have never participated.

    Means over all N clients are rescaled to the new N: the new clients contribute zero.

    Raises:
        ConfigurationError: if a piece has options for a fixed number of clients.
    """
    slots = dict(state.slots)
    for slot, piece in algorithm.pieces().items():
        refuse_new_clients(piece)
        if isinstance(piece, Stateful):
            slots[slot] = piece.grow(slots[slot], before, after, state.version)
    return ServerState(state.params, state.version, slots | controls.grown(slots, before, after))
