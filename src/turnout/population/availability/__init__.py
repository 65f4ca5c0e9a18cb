"""When clients are available: by chance, in cycles, or as a trace recorded it."""

from turnout.core.registry import lookup
from turnout.population.availability.base import Availability, BoundAvailability
from turnout.population.availability.bernoulli import Bernoulli
from turnout.population.availability.cyclic import Cyclic
from turnout.population.availability.diurnal import Diurnal
from turnout.population.availability.everyone import Everyone
from turnout.population.availability.markov import Markov
from turnout.population.availability.modulated import InterleavedSine, Sine, Staircase
from turnout.population.availability.trace import Flash, TimedTrace, Trace

__all__ = [
    "Availability",
    "Bernoulli",
    "BoundAvailability",
    "Cyclic",
    "Diurnal",
    "Everyone",
    "Flash",
    "InterleavedSine",
    "Markov",
    "Sine",
    "Staircase",
    "TimedTrace",
    "Trace",
]

__getattr__ = lookup(__name__)
