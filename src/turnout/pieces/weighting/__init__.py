"""Weightings: how much each report counts in the average. They form a chain that ends in one normaliser."""

from turnout.core.registry import lookup
from turnout.pieces.weighting.alignment import Alignment, DivideBySecondCohort, SignOfAlignment
from turnout.pieces.weighting.appeal import Appeal, DivideBySumPlus
from turnout.pieces.weighting.discount import ByStaleness
from turnout.pieces.weighting.echo import Echo
from turnout.pieces.weighting.examples import ByExamples, ExamplesUpTo
from turnout.pieces.weighting.fairness import DivideByCurvature
from turnout.pieces.weighting.known_rates import KnownRates
from turnout.pieces.weighting.local_steps import DivideByLocalSteps
from turnout.pieces.weighting.multiplicative import MultiplicativeWeights
from turnout.pieces.weighting.noisy_curvature import DivideByNoisyCurvature
from turnout.pieces.weighting.noisy_sum import DivideByNoisySum
from turnout.pieces.weighting.normalise import DivideByAbsoluteSum, DivideByClients, DivideByParticipants, DivideBySum
from turnout.pieces.weighting.participation import Participation
from turnout.pieces.weighting.smoothed_rate import BySmoothedRate
from turnout.pieces.weighting.staleness import ExpectedStaleness

__all__ = [
    "Alignment",
    "Appeal",
    "ByExamples",
    "BySmoothedRate",
    "ByStaleness",
    "DivideByAbsoluteSum",
    "DivideByClients",
    "DivideByCurvature",
    "DivideByLocalSteps",
    "DivideByNoisyCurvature",
    "DivideByNoisySum",
    "DivideByParticipants",
    "DivideBySecondCohort",
    "DivideBySum",
    "DivideBySumPlus",
    "Echo",
    "ExamplesUpTo",
    "ExpectedStaleness",
    "KnownRates",
    "MultiplicativeWeights",
    "Participation",
    "SignOfAlignment",
]

__getattr__ = lookup(__name__)
