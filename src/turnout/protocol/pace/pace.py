"""The base classes of a pace: its options, and the state machine that schedules tasks and server steps.

A pace is a protocol without I/O, numerics or a clock. A driver reports each event and its time by calling a method, and
carries out the returned `Action` list, in order, before it reports the next event. A simulation in virtual time and a
server on a network are two drivers of the same object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnout.core.registry import Family, Registered
from turnout.protocol.pace.actions import Action, Course, Drop, Ignore, Phase, Training
from turnout.protocol.pace.tasks import OpenTasks


@dataclass(frozen=True)
class Pace(Registered, ABC):
    """Schedule tasks and server steps. A pace holds the options; `bind` returns the state machine of one run."""

    family = Family("pace", "paces", ("turnout.protocol.pace",))

    steps_are_rounds: ClassVar[bool] = False
    """True if every step has its own cohort, so that a round of availability can be a server step."""

    forms_groups: ClassVar[bool] = False
    """True if groups of clients have their own rounds, each from one version, in which updates can be masked."""

    def masks_together(self, num_clients: int) -> int:
        """Return the maximum number of clients in one sum, of N clients."""
        return num_clients

    @abstractmethod
    def bind(self, num_clients: int, course: Course = Training()) -> BoundPace:  # noqa: B008  # a constant
        """Return the state machine for N clients, in its initial state.

        Args:
            num_clients: N.
            course: the phases of a round: an algorithm, or `Training`.

        Raises:
            ConfigurationError: if the options do not fit N clients, or the pace does not support a phase.
        """


class BoundPace(ABC):
    """The state machine of a pace. Every task ends exactly once: in a `Step`, a `Gather` or a `Drop`.

    Attributes:
        version: number of server steps so far.
        open: the tasks that clients work on.
    """

    extra: tuple[Phase, ...] = ()
    """The phases after training."""

    mixes_versions: bool = True
    """True if a step may use reports of several versions."""

    def __init__(self) -> None:
        self.version = 0
        self.open = OpenTasks()

    def start(self, time: float) -> list[Action]:
        """Start; called once, before any other event. It selects clients, as when one joins."""
        return self.joined(time)

    @abstractmethod
    def chosen(self, time: float, clients: Sequence[int], group: int = 0) -> list[Action]:
        """Handle the clients that were selected for the last `Choose`, or for that of a group.

        Raises:
            ConfigurationError: if a client is not idle, if there are too many clients, or if no `Choose` is pending.
        """

    def reported(self, time: float, client: int, task: int, version: int) -> list[Action]:
        """Handle the report of a task, trained from `version`."""
        if (reason := self.open.why_closed(task, client)) is not None:
            return [Ignore(task, client, reason)]
        if version != self.open.end(task):
            return [Drop([task], [client], "wrong version"), *self._task_ended([client])]
        return self._arrived(time, client, task, version)

    @abstractmethod
    def _arrived(self, time: float, client: int, task: int, trained: int) -> list[Action]:
        """Handle the report of a task that has just ended, trained from the version that it was sent with."""

    def died(self, time: float, client: int, task: int) -> list[Action]:
        """Handle a client that gave up a task; it is still available."""
        if (reason := self.open.why_closed(task, client)) is not None:
            return [Ignore(task, client, reason)]
        self.open.end(task)
        return [Drop([task], [client], "died"), *self._task_ended([client])]

    def left(self, time: float, clients: Sequence[int]) -> list[Action]:
        """Handle clients that became unavailable, with or without a task; they send nothing until they join again."""
        tasks, working = self.open.end_of(clients)
        dropped: list[Action] = [Drop(tasks, working, "left")] if tasks else []
        return dropped + self._clients_left(clients, working)

    @abstractmethod
    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Handle clients that became available; `clients` are preferred, and empty if the driver does not know them."""

    def expired(self, time: float, timer: int) -> list[Action]:
        """Handle a timer that expired."""
        return []

    def poll(self) -> list[Action]:
        """Return further actions after all actions of the last event have been carried out."""
        return []

    def newly_idle(self) -> list[int]:
        """Return, once, clients that became idle for another reason than a report, a step or a drop of their task."""
        return []

    def resume(self, time: float) -> list[Action]:
        """Continue after a step that was planned as the last one; tasks that were open then have ended."""
        self.open.end_all()
        return self.joined(time)

    def grow(self, num_clients: int) -> None:  # noqa: B027  # most paces have no arrays of clients
        """Increase the number of clients."""

    @property
    def timers(self) -> Collection[int]:
        """The timers whose expiry has an effect."""
        return ()

    def group_of(self, client: int) -> int:
        """Return the group of a client; 0 is the round of all clients."""
        return 0

    @property
    def live_groups(self) -> Collection[int]:
        """The groups whose updates no step has used yet."""
        return ()

    @property
    def waits_for(self) -> Sequence[int]:
        """The clients whose reports the next step requires."""
        return ()

    def idle(self, client: int) -> bool:
        """Return True if the pace allows a new task for a client; by default, if it has none."""
        return client not in self.open.task_of

    @abstractmethod
    def ignores(self, client: int, joins: bool) -> bool:
        """Return True if `joined` (`left`, if not `joins`) with this client would change nothing now."""

    def busy(self) -> list[int]:
        """Return the clients that are not idle; by default, those with a task."""
        return list(self.open.task_of)

    def versions(self) -> set[int]:
        """Return the versions of open tasks and pending reports, and the present version."""
        return self.open.versions() | {version for _, _, version in self.pending()} | {self.version}

    @abstractmethod
    def pending(self) -> list[tuple[int, int, int]]:
        """Return the reports that wait for their step, (task, client, version), in the order of arrival."""

    @abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""

    @abstractmethod
    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore what `state` returned, in place of `start`."""

    def _task_ended(self, clients: Sequence[int]) -> list[Action]:
        """Return the actions after tasks of these clients, which are still available, have ended."""
        return []

    def _clients_left(self, clients: Sequence[int], working: Sequence[int]) -> list[Action]:
        """Return the actions after these clients became unavailable; those in `working` had tasks."""
        return []
