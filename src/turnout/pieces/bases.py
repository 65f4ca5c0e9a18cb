"""Import the base classes of pieces. `turnout.pieces` imports this module when the first of them is used."""

# ruff: noqa: F403
from turnout.base import *
from turnout.core.schedule import Schedule as Schedule
from turnout.data.partition import Partition as Partition
from turnout.models import ModelSpec as ModelSpec
from turnout.pieces.local import Solver as Solver
from turnout.pieces.local import Update as Update
from turnout.pieces.local import Work as Work
from turnout.population import Attack as Attack
from turnout.population import Availability as Availability
from turnout.population import BoundAttack as BoundAttack
from turnout.population import BoundAvailability as BoundAvailability
from turnout.population import BoundRequirement as BoundRequirement
from turnout.population import BoundSpeed as BoundSpeed
from turnout.population import Requirement as Requirement
from turnout.population import SpeedModel as SpeedModel
from turnout.population.delay import Delay as Delay
from turnout.protocol.pace import BoundPace as BoundPace
from turnout.protocol.pace import Pace as Pace
from turnout.trackers.tracker import Tracker as Tracker
