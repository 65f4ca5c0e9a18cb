"""What clients do: a solver, corrections of its gradient, measurements, and how much work there is."""

from turnout.local.measurements import AppealGap, GradientNorm, Inexactness, StartGradient, StartLoss
from turnout.local.meta import Meta
from turnout.local.noise import GradientNoise
from turnout.local.periodic_scaffold import PeriodicScaffold
from turnout.local.prox import Prox
from turnout.local.scaffold import Scaffold
from turnout.local.sgd import Sgd
from turnout.local.time_budget import TimeBudget
from turnout.local.work import ShareOfWork, UniformWork, Work

__all__ = [
    "AppealGap",
    "GradientNoise",
    "GradientNorm",
    "Inexactness",
    "Meta",
    "PeriodicScaffold",
    "Prox",
    "Scaffold",
    "Sgd",
    "ShareOfWork",
    "StartGradient",
    "StartLoss",
    "TimeBudget",
    "UniformWork",
    "Work",
]
