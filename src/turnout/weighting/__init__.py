"""How much each report counts: a chain on the weights, ended by a normaliser."""

from turnout.weighting.alignment import Alignment, DivideBySecondCohort, SignOfAlignment
from turnout.weighting.examples import ByExamples
from turnout.weighting.known_rates import KnownRates
from turnout.weighting.local_steps import DivideByLocalSteps
from turnout.weighting.normalise import DivideByAbsoluteSum, DivideByClients, DivideByParticipants, DivideBySum
from turnout.weighting.participation import Participation

__all__ = [
    "Alignment",
    "ByExamples",
    "DivideByAbsoluteSum",
    "DivideByClients",
    "DivideByLocalSteps",
    "DivideByParticipants",
    "DivideBySecondCohort",
    "DivideBySum",
    "KnownRates",
    "Participation",
    "SignOfAlignment",
]
