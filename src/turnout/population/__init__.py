"""Model the clients of a federation: availability, speed, requirements and behavior."""

from turnout.population import delay as delay
from turnout.population.availability import *  # noqa: F403
from turnout.population.availability.rates import label_correlated_rates as label_correlated_rates
from turnout.population.behavior import *  # noqa: F403
from turnout.population.diagnostics import participation_table as participation_table
from turnout.population.fedscale import fedscale_availability as fedscale_availability
from turnout.population.fedscale import fedscale_speed as fedscale_speed
from turnout.population.population import Population as Population
from turnout.population.requirement import *  # noqa: F403
from turnout.population.speed import *  # noqa: F403
