"""Selections: which of the available clients form the cohort of a round."""

from turnout.core.registry import lookup
from turnout.pieces.selection.by_gradient import ByAlignment, ByAlignmentAndInexactness, ByGradientNorm
from turnout.pieces.selection.everyone import AllAvailable
from turnout.pieces.selection.least_served import LeastServed
from turnout.pieces.selection.longest_absent import LongestAbsent
from turnout.pieces.selection.one_place import OnePlace
from turnout.pieces.selection.oort import Oort
from turnout.pieces.selection.poisson import Poisson
from turnout.pieces.selection.power_of_choice import PowerOfChoice, RecentLoss
from turnout.pieces.selection.uniform import Uniform
from turnout.pieces.selection.with_replacement import TwoCohorts, WithReplacement

__all__ = [
    "AllAvailable",
    "ByAlignment",
    "ByAlignmentAndInexactness",
    "ByGradientNorm",
    "LeastServed",
    "LongestAbsent",
    "OnePlace",
    "Oort",
    "Poisson",
    "PowerOfChoice",
    "RecentLoss",
    "TwoCohorts",
    "Uniform",
    "WithReplacement",
]

__getattr__ = lookup(__name__)
