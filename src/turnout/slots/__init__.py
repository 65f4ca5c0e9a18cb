"""Base classes of what fills the slots of an algorithm, the algorithm itself, and the two steps that see all slots.

Slots in the order data flows: selection -> local -> guard -> weighting -> aggregation -> server.
"""

from turnout.slots.aggregation import Aggregation, ParticipationLimit, SecurePhase
from turnout.slots.guard import Guard
from turnout.slots.local import Correction, Local, Measurement
from turnout.slots.personalization import Personalization
from turnout.slots.piece import Piece, Slots
from turnout.slots.selection import RecordingSelection, Selection
from turnout.slots.server import Server
from turnout.slots.smoothed_rates import SmoothedRates
from turnout.slots.stateful import Stateful
from turnout.slots.weighting import InformsClients, KnownInAdvance, Normaliser, Weighting, Weights, Whose, check_weights

__all__ = [
    "Aggregation",
    "Correction",
    "Guard",
    "InformsClients",
    "KnownInAdvance",
    "Local",
    "Measurement",
    "Normaliser",
    "ParticipationLimit",
    "Personalization",
    "Piece",
    "RecordingSelection",
    "SecurePhase",
    "Selection",
    "Server",
    "Slots",
    "SmoothedRates",
    "Stateful",
    "Weighting",
    "Weights",
    "Whose",
    "check_weights",
]
