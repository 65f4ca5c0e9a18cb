"""Base classes of pieces, the algorithm as a record of their slots, and the steps of client and server.

Slots in the order of the data flow: selection -> local -> guard -> weighting -> aggregation -> server.
"""

from turnout.base.aggregation import Aggregation as Aggregation
from turnout.base.algorithm import ALGORITHMS as ALGORITHMS
from turnout.base.algorithm import Algorithm as Algorithm
from turnout.base.controls import Controls as Controls
from turnout.base.guard import Guard as Guard
from turnout.base.local import Correction as Correction
from turnout.base.local import CountsSteps as CountsSteps
from turnout.base.local import FineTunes as FineTunes
from turnout.base.local import KeepingCorrection as KeepingCorrection
from turnout.base.local import Local as Local
from turnout.base.local import LossTerm as LossTerm
from turnout.base.local import Measurement as Measurement
from turnout.base.local import OfRequirement as OfRequirement
from turnout.base.local import OfTraining as OfTraining
from turnout.base.local import Outcome as Outcome
from turnout.base.local import Traits as Traits
from turnout.base.personalization import CorrectsColumns as CorrectsColumns
from turnout.base.personalization import Personalization as Personalization
from turnout.base.personalization import TrainsBeside as TrainsBeside
from turnout.base.piece import ClientPiece as ClientPiece
from turnout.base.piece import MemoryShapes as MemoryShapes
from turnout.base.piece import MutatesRows as MutatesRows
from turnout.base.piece import Piece as Piece
from turnout.base.piece import Slots as Slots
from turnout.base.piece import Stateful as Stateful
from turnout.base.selection import Enlargeable as Enlargeable
from turnout.base.selection import FixedCohort as FixedCohort
from turnout.base.selection import PoolsExamples as PoolsExamples
from turnout.base.selection import RecordingSelection as RecordingSelection
from turnout.base.selection import Selection as Selection
from turnout.base.selection import TakesAll as TakesAll
from turnout.base.selection import enlarged_size as enlarged_size
from turnout.base.server import AddsDirection as AddsDirection
from turnout.base.server import ScalesByReports as ScalesByReports
from turnout.base.server import Server as Server
from turnout.base.server import ShortensSteps as ShortensSteps
from turnout.base.server import StepsAlone as StepsAlone
from turnout.base.smoothed_rates import SmoothedRates as SmoothedRates
from turnout.base.weighting import InformsClients as InformsClients
from turnout.base.weighting import KnownInAdvance as KnownInAdvance
from turnout.base.weighting import Normalizer as Normalizer
from turnout.base.weighting import Weighting as Weighting
from turnout.base.weighting import Weights as Weights
from turnout.base.weighting import Whose as Whose
from turnout.base.weighting import check_weights as check_weights
from turnout.core.types import WithState as WithState
