"""Who the clients are and when they are there."""

from turnout.population.availability import Availability, BoundAvailability
from turnout.population.bernoulli import Bernoulli
from turnout.population.cyclic import Cyclic
from turnout.population.diagnostics import participation_table
from turnout.population.everyone import Everyone
from turnout.population.markov import Markov
from turnout.population.population import Population
from turnout.population.rates import label_correlated_rates
from turnout.population.trace import Trace

__all__ = [
    "Availability",
    "Bernoulli",
    "BoundAvailability",
    "Cyclic",
    "Everyone",
    "Markov",
    "Population",
    "Trace",
    "label_correlated_rates",
    "participation_table",
]
