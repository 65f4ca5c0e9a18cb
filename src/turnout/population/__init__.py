"""Who the clients are, when they are there, and how fast they are."""

from turnout.population import delay
from turnout.population.availability.base import Availability, BoundAvailability
from turnout.population.availability.bernoulli import Bernoulli
from turnout.population.availability.cyclic import Cyclic
from turnout.population.availability.diurnal import Diurnal
from turnout.population.availability.everyone import Everyone
from turnout.population.availability.markov import Markov
from turnout.population.availability.modulated import InterleavedSine, Sine, Staircase
from turnout.population.availability.rates import label_correlated_rates
from turnout.population.availability.timed_trace import Flash, TimedTrace
from turnout.population.availability.trace import Trace
from turnout.population.behaviour import (
    Attack,
    BoundAttack,
    Byzantine,
    random_updates,
    scaled_updates,
    sign_flipping,
)
from turnout.population.behaviour.attacks import ALittleIsEnough, InnerProduct, LabelFlipping, Mimic, WorstCase
from turnout.population.behaviour.dropout import BoundDropout, Dropout
from turnout.population.behaviour.opting import Opting
from turnout.population.diagnostics import participation_table
from turnout.population.fedscale import fedscale_availability, fedscale_speed
from turnout.population.population import Population
from turnout.population.requirement import BoundRequirement, GivenRequirement, Requirement, WarmUp
from turnout.population.speed import Speed
from turnout.population.speed.durations import BoundSpeed, Durations, SpeedModel
from turnout.population.speed.groups import Group
from turnout.population.speed.profiles import device_profiles
from turnout.population.speed.recorded import RecordedSpeed

__all__ = [
    "ALittleIsEnough",
    "Attack",
    "Availability",
    "Bernoulli",
    "BoundAttack",
    "BoundAvailability",
    "BoundDropout",
    "BoundRequirement",
    "BoundSpeed",
    "Byzantine",
    "Cyclic",
    "Diurnal",
    "Dropout",
    "Durations",
    "Everyone",
    "Flash",
    "GivenRequirement",
    "Group",
    "InnerProduct",
    "InterleavedSine",
    "LabelFlipping",
    "Markov",
    "Mimic",
    "Opting",
    "Population",
    "RecordedSpeed",
    "Requirement",
    "Sine",
    "Speed",
    "SpeedModel",
    "Staircase",
    "TimedTrace",
    "Trace",
    "WarmUp",
    "WorstCase",
    "delay",
    "device_profiles",
    "fedscale_availability",
    "fedscale_speed",
    "label_correlated_rates",
    "participation_table",
    "random_updates",
    "scaled_updates",
    "sign_flipping",
]
