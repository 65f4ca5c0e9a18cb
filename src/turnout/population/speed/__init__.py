"""Model the duration of tasks: drawn from distributions, by groups of clients, or replayed from a recording."""

from turnout.core.registry import lookup as _lookup
from turnout.population.speed.distributions import Speed as Speed
from turnout.population.speed.durations import BoundSpeed as BoundSpeed
from turnout.population.speed.durations import Durations as Durations
from turnout.population.speed.durations import SpeedModel as SpeedModel
from turnout.population.speed.groups import Group as Group
from turnout.population.speed.groups import device_profiles as device_profiles
from turnout.population.speed.recorded import RecordedSpeed as RecordedSpeed

__getattr__ = _lookup(__name__)
