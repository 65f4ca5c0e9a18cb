"""Local training: solvers, corrections of their gradients, measurements of clients, and amounts of local work."""

from turnout.core.registry import lookup as _lookup
from turnout.pieces.local.adam import Adam as Adam
from turnout.pieces.local.adam import AdamW as AdamW
from turnout.pieces.local.aggregation_steps import AggregationSteps as AggregationSteps
from turnout.pieces.local.alternating import Alternating as Alternating
from turnout.pieces.local.measurements import AppealGap as AppealGap
from turnout.pieces.local.measurements import GradientNorm as GradientNorm
from turnout.pieces.local.measurements import Inexactness as Inexactness
from turnout.pieces.local.measurements import LossRms as LossRms
from turnout.pieces.local.measurements import StartGradient as StartGradient
from turnout.pieces.local.measurements import StartLoss as StartLoss
from turnout.pieces.local.meta import Meta as Meta
from turnout.pieces.local.noise import GradientNoise as GradientNoise
from turnout.pieces.local.pair_steps import MixtureSteps as MixtureSteps
from turnout.pieces.local.pair_steps import MoreauSteps as MoreauSteps
from turnout.pieces.local.regularizers import Contrastive as Contrastive
from turnout.pieces.local.regularizers import DynamicRegularizer as DynamicRegularizer
from turnout.pieces.local.regularizers import Prox as Prox
from turnout.pieces.local.scaffold import PeriodicScaffold as PeriodicScaffold
from turnout.pieces.local.scaffold import Scaffold as Scaffold
from turnout.pieces.local.sgd import Sgd as Sgd
from turnout.pieces.local.solver import Solver as Solver
from turnout.pieces.local.tail_penalty import TailPenalty as TailPenalty
from turnout.pieces.local.tracking import GradientTracking as GradientTracking
from turnout.pieces.local.update import Update as Update
from turnout.pieces.local.work import ShareOfWork as ShareOfWork
from turnout.pieces.local.work import TimeBudget as TimeBudget
from turnout.pieces.local.work import UniformWork as UniformWork
from turnout.pieces.local.work import Work as Work

__getattr__ = _lookup(__name__)
