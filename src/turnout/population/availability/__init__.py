"""Model the availability of clients: at random, in cycles, or as recorded in a trace."""

from turnout.core.registry import lookup as _lookup
from turnout.population.availability.base import Availability as Availability
from turnout.population.availability.base import BoundAvailability as BoundAvailability
from turnout.population.availability.diurnal import Diurnal as Diurnal
from turnout.population.availability.flash import Flash as Flash
from turnout.population.availability.growing import Arrivals as Arrivals
from turnout.population.availability.growing import Departures as Departures
from turnout.population.availability.independent import Bernoulli as Bernoulli
from turnout.population.availability.independent import Everyone as Everyone
from turnout.population.availability.independent import InterleavedSine as InterleavedSine
from turnout.population.availability.independent import Sine as Sine
from turnout.population.availability.independent import Staircase as Staircase
from turnout.population.availability.markov import Markov as Markov
from turnout.population.availability.periodic import Cyclic as Cyclic
from turnout.population.availability.periodic import RoundRobin as RoundRobin
from turnout.population.availability.recording import TimedTrace as TimedTrace
from turnout.population.availability.trace import Trace as Trace

__getattr__ = _lookup(__name__)
