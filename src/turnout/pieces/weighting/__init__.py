"""Weightings: how much each report counts in the average. They form a chain that ends in one normalizer."""

from turnout.core.registry import lookup as _lookup
from turnout.pieces.weighting.alignment import Alignment as Alignment
from turnout.pieces.weighting.alignment import DivideBySecondCohort as DivideBySecondCohort
from turnout.pieces.weighting.alignment import SignOfAlignment as SignOfAlignment
from turnout.pieces.weighting.examples import ByExamples as ByExamples
from turnout.pieces.weighting.examples import ExamplesUpTo as ExamplesUpTo
from turnout.pieces.weighting.fairness import DivideByCurvature as DivideByCurvature
from turnout.pieces.weighting.noisy_sum import DivideByNoisyCurvature as DivideByNoisyCurvature
from turnout.pieces.weighting.noisy_sum import DivideByNoisySum as DivideByNoisySum
from turnout.pieces.weighting.normalize import DivideByAbsoluteSum as DivideByAbsoluteSum
from turnout.pieces.weighting.normalize import DivideByClients as DivideByClients
from turnout.pieces.weighting.normalize import DivideByLocalSteps as DivideByLocalSteps
from turnout.pieces.weighting.normalize import DivideByParticipants as DivideByParticipants
from turnout.pieces.weighting.normalize import DivideBySum as DivideBySum
from turnout.pieces.weighting.participation import Participation as Participation
from turnout.pieces.weighting.rates import BySmoothedRate as BySmoothedRate
from turnout.pieces.weighting.rates import KnownRates as KnownRates
from turnout.pieces.weighting.requirement import Appeal as Appeal
from turnout.pieces.weighting.requirement import DivideBySumPlus as DivideBySumPlus
from turnout.pieces.weighting.requirement import MultiplicativeWeights as MultiplicativeWeights
from turnout.pieces.weighting.staleness import ByStaleness as ByStaleness
from turnout.pieces.weighting.staleness import Echo as Echo
from turnout.pieces.weighting.staleness import ExpectedStaleness as ExpectedStaleness

__getattr__ = _lookup(__name__)
