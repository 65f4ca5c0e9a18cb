"""Who takes part in a round."""

from turnout.selection.by_gradient import ByAlignment, ByAlignmentAndInexactness, ByGradientNorm
from turnout.selection.everyone import AllAvailable
from turnout.selection.least_served import LeastServed
from turnout.selection.longest_absent import LongestAbsent
from turnout.selection.poisson import Poisson
from turnout.selection.uniform import Uniform
from turnout.selection.with_replacement import TwoCohorts, WithReplacement

__all__ = [
    "AllAvailable",
    "ByAlignment",
    "ByAlignmentAndInexactness",
    "ByGradientNorm",
    "LeastServed",
    "LongestAbsent",
    "Poisson",
    "TwoCohorts",
    "Uniform",
    "WithReplacement",
]
