"""When the server asks whom, and when it steps: state machines without I/O, clock and numerics."""

from turnout.protocol.pace.actions import (
    PHASES,
    REASONS,
    SECURE_PHASES,
    Action,
    Ask,
    Choose,
    Drop,
    Gather,
    Ignore,
    Phase,
    Reason,
    SetTimer,
    Step,
)
from turnout.protocol.pace.buffered import BoundBuffered, Buffered
from turnout.protocol.pace.pace import BoundPace, Pace
from turnout.protocol.pace.rounds import BoundRounds, Rounds

__all__ = [
    "PHASES",
    "REASONS",
    "SECURE_PHASES",
    "Action",
    "Ask",
    "BoundBuffered",
    "BoundPace",
    "BoundRounds",
    "Buffered",
    "Choose",
    "Drop",
    "Gather",
    "Ignore",
    "Pace",
    "Phase",
    "Reason",
    "Rounds",
    "SetTimer",
    "Step",
]
