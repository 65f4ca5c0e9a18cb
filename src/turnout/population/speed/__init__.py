"""How long clients take: durations drawn from distributions, by groups of clients, or replayed from a record."""

from turnout.core.registry import lookup
from turnout.population.speed.distributions import Speed
from turnout.population.speed.durations import BoundSpeed, Durations, SpeedModel
from turnout.population.speed.groups import Group, device_profiles
from turnout.population.speed.recorded import RecordedSpeed

__all__ = ["BoundSpeed", "Durations", "Group", "RecordedSpeed", "Speed", "SpeedModel", "device_profiles"]

__getattr__ = lookup(__name__)
