"""Schedules of tasks and server steps: state machines without I/O, clock or numerics."""

from turnout.protocol.pace.actions import PHASES as PHASES
from turnout.protocol.pace.actions import REASONS as REASONS
from turnout.protocol.pace.actions import Action as Action
from turnout.protocol.pace.actions import Ask as Ask
from turnout.protocol.pace.actions import Choose as Choose
from turnout.protocol.pace.actions import Course as Course
from turnout.protocol.pace.actions import Drop as Drop
from turnout.protocol.pace.actions import Gather as Gather
from turnout.protocol.pace.actions import Ignore as Ignore
from turnout.protocol.pace.actions import Phase as Phase
from turnout.protocol.pace.actions import Reason as Reason
from turnout.protocol.pace.actions import SetTimer as SetTimer
from turnout.protocol.pace.actions import Step as Step
from turnout.protocol.pace.actions import Training as Training
from turnout.protocol.pace.buffered import BoundBuffered as BoundBuffered
from turnout.protocol.pace.buffered import Buffered as Buffered
from turnout.protocol.pace.groups import BoundGroups as BoundGroups
from turnout.protocol.pace.groups import BufferedGroups as BufferedGroups
from turnout.protocol.pace.pace import BoundPace as BoundPace
from turnout.protocol.pace.pace import Pace as Pace
from turnout.protocol.pace.rounds import BoundRounds as BoundRounds
from turnout.protocol.pace.rounds import Rounds as Rounds

__all__ = ["Buffered", "BufferedGroups", "Pace", "Rounds"]
