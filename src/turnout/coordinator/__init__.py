"""A server without I/O, clock and data, which a simulation and a deployment both drive."""

from turnout.coordinator.batch import Batch, Order, Stepped, with_repeats
from turnout.coordinator.choice import Choice, Presence
from turnout.coordinator.cohorts import Cohorts, RandomCohorts, SelectedCohorts
from turnout.coordinator.coordinator import Coordinator
from turnout.coordinator.influence import Influence
from turnout.coordinator.published import Published
from turnout.coordinator.scheduler import Scheduler, Told

__all__ = [
    "Batch",
    "Choice",
    "Cohorts",
    "Coordinator",
    "Influence",
    "Order",
    "Presence",
    "Published",
    "RandomCohorts",
    "Scheduler",
    "SelectedCohorts",
    "Stepped",
    "Told",
    "with_repeats",
]
