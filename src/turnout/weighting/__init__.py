"""How much each report counts: a chain on the weights, ended by a normaliser."""

from turnout.weighting.examples import ByExamples
from turnout.weighting.known_rates import KnownRates
from turnout.weighting.normalise import DivideByClients, DivideByParticipants, DivideBySum
from turnout.weighting.participation import Participation

__all__ = ["ByExamples", "DivideByClients", "DivideByParticipants", "DivideBySum", "KnownRates", "Participation"]
