"""Schedules of tasks and server steps: state machines without I/O, clock or numerics."""

from turnout.protocol.pace.actions import (
    PHASES,
    REASONS,
    Action,
    Ask,
    Choose,
    Course,
    Drop,
    Gather,
    Ignore,
    Phase,
    Reason,
    SetTimer,
    Step,
    Training,
)
from turnout.protocol.pace.buffered import BoundBuffered, Buffered
from turnout.protocol.pace.groups import BoundGroups, BufferedGroups
from turnout.protocol.pace.pace import BoundPace, Pace
from turnout.protocol.pace.rounds import BoundRounds, Rounds

__all__ = [
    "PHASES",
    "REASONS",
    "Action",
    "Ask",
    "BoundBuffered",
    "BoundGroups",
    "BoundPace",
    "BoundRounds",
    "Buffered",
    "BufferedGroups",
    "Choose",
    "Course",
    "Drop",
    "Gather",
    "Ignore",
    "Pace",
    "Phase",
    "Reason",
    "Rounds",
    "SetTimer",
    "Step",
    "Training",
]
