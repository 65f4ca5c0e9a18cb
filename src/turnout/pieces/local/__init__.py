"""Local training: solvers, corrections of their gradients, measurements of clients, and amounts of local work."""

from turnout.core.registry import lookup
from turnout.pieces.local.adam import Adam, AdamW
from turnout.pieces.local.aggregation_steps import AggregationSteps
from turnout.pieces.local.alternating import Alternating
from turnout.pieces.local.contrastive import Contrastive
from turnout.pieces.local.dynamic import DynamicRegularizer
from turnout.pieces.local.measurements import AppealGap, GradientNorm, Inexactness, LossRms, StartGradient, StartLoss
from turnout.pieces.local.meta import Meta
from turnout.pieces.local.noise import GradientNoise
from turnout.pieces.local.pair_steps import MixtureSteps, MoreauSteps
from turnout.pieces.local.periodic_scaffold import PeriodicScaffold
from turnout.pieces.local.prox import Prox
from turnout.pieces.local.scaffold import Scaffold
from turnout.pieces.local.sgd import Sgd
from turnout.pieces.local.solver import Solver
from turnout.pieces.local.tail_penalty import TailPenalty
from turnout.pieces.local.time_budget import TimeBudget
from turnout.pieces.local.tracking import GradientTracking
from turnout.pieces.local.update import Update
from turnout.pieces.local.work import ShareOfWork, UniformWork, Work

__all__ = [
    "Adam",
    "AdamW",
    "AggregationSteps",
    "Alternating",
    "AppealGap",
    "Contrastive",
    "DynamicRegularizer",
    "GradientNoise",
    "GradientNorm",
    "GradientTracking",
    "Inexactness",
    "LossRms",
    "Meta",
    "MixtureSteps",
    "MoreauSteps",
    "PeriodicScaffold",
    "Prox",
    "Scaffold",
    "Sgd",
    "ShareOfWork",
    "Solver",
    "StartGradient",
    "StartLoss",
    "TailPenalty",
    "TimeBudget",
    "UniformWork",
    "Update",
    "Work",
]

__getattr__ = lookup(__name__)
