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
from turnout.base.personalization import CorrectsColumns, Personalization, TrainsBeside
from turnout.base.piece import ClientPiece, MemoryShapes, Piece, Slots
from turnout.base.selection import (
    Enlargeable,
    FixedCohort,
    PoolsExamples,
    RecordingSelection,
    Selection,
    TakesAll,
    enlarged_size,
)
from turnout.base.server import AddsDirection, ScalesByReports, Server, ShortensSteps, StepsAlone
from turnout.base.smoothed_rates import SmoothedRates
from turnout.base.stateful import MutatesRows, Stateful, WithState
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
    "AddsDirection",
    "Aggregation",
    "Algorithm",
    "ClientPiece",
    "Controls",
    "Correction",
    "CorrectsColumns",
    "CountsSteps",
    "Enlargeable",
    "FineTunes",
    "FixedCohort",
    "Guard",
    "InformsClients",
    "KeepingCorrection",
    "KnownInAdvance",
    "Local",
    "LossTerm",
    "Measurement",
    "MemoryShapes",
    "MutatesRows",
    "Normaliser",
    "OfRequirement",
    "OfTraining",
    "Outcome",
    "Personalization",
    "Piece",
    "PoolsExamples",
    "RecordingSelection",
    "ScalesByReports",
    "Selection",
    "Server",
    "ShortensSteps",
    "Slots",
    "SmoothedRates",
    "Stateful",
    "StepsAlone",
    "TakesAll",
    "TrainsBeside",
    "Traits",
    "Weighting",
    "Weights",
    "Whose",
    "WithState",
    "check_weights",
    "enlarged_size",
]
