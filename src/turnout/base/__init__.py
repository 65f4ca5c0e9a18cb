"""Base classes of pieces, the algorithm as a record of their slots, and the steps of client and server.

Slots in the order of the data flow: selection -> local -> guard -> weighting -> aggregation -> server.
"""

from turnout.base.aggregation import Aggregation
from turnout.base.algorithm import ALGORITHMS, Algorithm
from turnout.base.controls import Controls
from turnout.base.guard import Guard
from turnout.base.local import (
    Correction,
    CountsSteps,
    FineTunes,
    KeepingCorrection,
    Local,
    LossTerm,
    Measurement,
    OfRequirement,
    OfTraining,
    Outcome,
)
from turnout.base.personalization import Personalization
from turnout.base.piece import ClientPiece, MemoryShapes, Piece, Slots
from turnout.base.selection import RecordingSelection, Selection, enlarged_size
from turnout.base.server import Server
from turnout.base.smoothed_rates import SmoothedRates
from turnout.base.stateful import Stateful, WithState
from turnout.base.traits import Traits
from turnout.base.weighting import (
    InformsClients,
    KnownInAdvance,
    Normaliser,
    Weighting,
    Weights,
    Whose,
    check_weights,
)

__all__ = [
    "ALGORITHMS",
    "Aggregation",
    "Algorithm",
    "ClientPiece",
    "Controls",
    "Correction",
    "CountsSteps",
    "FineTunes",
    "Guard",
    "InformsClients",
    "KeepingCorrection",
    "KnownInAdvance",
    "Local",
    "LossTerm",
    "Measurement",
    "MemoryShapes",
    "Normaliser",
    "OfRequirement",
    "OfTraining",
    "Outcome",
    "Personalization",
    "Piece",
    "RecordingSelection",
    "Selection",
    "Server",
    "Slots",
    "SmoothedRates",
    "Stateful",
    "Traits",
    "Weighting",
    "Weights",
    "Whose",
    "WithState",
    "check_weights",
    "enlarged_size",
]
