"""When the server asks whom, and when it steps."""

from turnout.pace.actions import Action, Ask, Choose, Drop, Ignore, SetTimer, Step
from turnout.pace.buffered import BoundBuffered, Buffered
from turnout.pace.clock import Clock
from turnout.pace.log import OUTCOMES
from turnout.pace.pace import BoundPace, Pace
from turnout.pace.rounds import BoundRounds, Rounds
from turnout.pace.schedule import Timeline, schedule
from turnout.pace.virtual import VirtualTime
from turnout.pace.work import WorkTimes

__all__ = [
    "OUTCOMES",
    "Action",
    "Ask",
    "BoundBuffered",
    "BoundPace",
    "BoundRounds",
    "Buffered",
    "Choose",
    "Clock",
    "Drop",
    "Ignore",
    "Pace",
    "Rounds",
    "SetTimer",
    "Step",
    "Timeline",
    "VirtualTime",
    "WorkTimes",
    "schedule",
]
