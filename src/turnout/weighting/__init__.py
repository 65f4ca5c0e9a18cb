"""How much each report counts: a chain on the weights, ended by a normaliser."""

from turnout.weighting.alignment import Alignment, DivideBySecondCohort, SignOfAlignment
from turnout.weighting.appeal import Appeal, DivideBySumPlus
from turnout.weighting.discount import ByStaleness
from turnout.weighting.echo import Echo
from turnout.weighting.examples import ByExamples, ExamplesUpTo
from turnout.weighting.fairness import DivideByCurvature
from turnout.weighting.known_rates import KnownRates
from turnout.weighting.local_steps import DivideByLocalSteps
from turnout.weighting.multiplicative import MultiplicativeWeights
from turnout.weighting.noisy_curvature import DivideByNoisyCurvature
from turnout.weighting.noisy_sum import DivideByNoisySum
from turnout.weighting.normalise import DivideByAbsoluteSum, DivideByClients, DivideByParticipants, DivideBySum
from turnout.weighting.participation import Participation
from turnout.weighting.smoothed_rate import BySmoothedRate
from turnout.weighting.staleness import ExpectedStaleness

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
