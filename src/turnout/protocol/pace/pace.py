"""Define the base classes of a pace: its options, and the state machine that says when to ask whom and when to step.

A pace is a protocol without I/O, without numerics and without a clock. A driver tells it what happened, and when, by
calling one of its methods; what comes back is a list of `Action` to be carried out in that order, before anything else is
told. A simulation in virtual time and a server on a network are two drivers of the same object.
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
    """The options of a pace; `bind` makes the state machine of one run."""

    family = Family("pace", "paces", ("turnout.protocol.pace",))

    steps_are_rounds: ClassVar[bool] = False
    """Whether a cohort is chosen for every step, so that a round of availability can be one of the server."""

    forms_groups: ClassVar[bool] = False
    """Whether groups of clients do rounds of their own, each with one version, in which updates can be masked."""

    def masks_together(self, num_clients: int) -> int:
        """Return how many of N clients are in one sum at most."""
        return num_clients

    @abstractmethod
    def bind(self, num_clients: int, course: Course = Training()) -> BoundPace:  # noqa: B008  # a constant
        """Return the state machine for N clients, before anything happened.

        Args:
            num_clients: N.
            course: what a round asks clients for: an algorithm, or rounds that only train.

        Raises:
            ConfigurationError: where the options do not fit so many clients, or the pace has no place for a phase.
        """


class BoundPace(ABC):
    """A pace in motion. Every task ends once: in a `Step` or a `Gather` that uses it, or in a `Drop` that says why not.

    Attributes:
        version: server steps taken so far.
        open: the tasks that are out with clients.
    """

    extra: tuple[Phase, ...] = ()
    """The phases after training."""

    mixes_versions: bool = True
    """True if a step may use reports of several versions."""

    def __init__(self) -> None:
        self.version = 0
        self.open = OpenTasks()

    @abstractmethod
    def start(self, time: float) -> list[Action]:
        """Begin; to be called once, before any other event."""

    @abstractmethod
    def chosen(self, time: float, clients: Sequence[int], group: int = 0) -> list[Action]:
        """Take the clients who were chosen, in answer to the last `Choose`, or to that of a group.

        Raises:
            ConfigurationError: for a client that is not idle, more clients than were wanted, or an answer to no question.
        """

    @abstractmethod
    def reported(self, time: float, client: int, task: int, version: int) -> list[Action]:
        """Take the report of a task, trained from `version`."""

    def died(self, time: float, client: int, task: int) -> list[Action]:
        """Note that a client dropped out in the middle of a task; it is there and may be chosen again."""
        if (reason := self.open.why_not(task, client)) is not None:
            return [Ignore(task, client, reason)]
        self.open.end(task)
        return [Drop([task], [client], "died"), *self._freed(time, [client])]

    def left(self, time: float, clients: Sequence[int]) -> list[Action]:
        """Note that clients went away, at work or not; they send nothing until they have joined again."""
        tasks, working = self.open.end_of(clients)
        dropped: list[Action] = [Drop(tasks, working, "left")] if tasks else []
        return dropped + self._gone(time, clients, working)

    @abstractmethod
    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Note that clients came. `clients` have the first claim to tasks; a driver need not know who came."""

    @abstractmethod
    def expired(self, time: float, timer: int) -> list[Action]:
        """Note that a timer has run out."""

    def more(self) -> list[Action]:
        """Return what else is to be done, once all that the last event led to was done."""
        return []

    def freed(self) -> list[int]:
        """Return, once, who became idle otherwise than by a report, a step or a drop of its own."""
        return []

    def resume(self, time: float) -> list[Action]:
        """Go on behind a step that was planned to be the last one: tasks that were open by then have ended."""
        self.open.end_all()
        return self.joined(time)

    def grow(self, num_clients: int) -> None:
        """Go on with so many clients: more than before."""
        del num_clients

    @property
    def timers(self) -> Collection[int]:
        """The timers that still matter."""
        return ()

    def group_of(self, client: int) -> int:
        """Return the group that a client is in; 0 is the round of all."""
        del client
        return 0

    @property
    def sums(self) -> Collection[int]:
        """The groups whose sums are still to be used."""
        return ()

    @property
    def waits_for(self) -> Sequence[int]:
        """The clients without whom there is no next step, however many others report."""
        return ()

    @abstractmethod
    def idle(self, client: int) -> bool:
        """Return whether a client may be chosen, as far as the pace is concerned."""

    @abstractmethod
    def ignores(self, client: int, comes: bool) -> bool:
        """Return whether `joined` or `left` with this client would change nothing, until something else happens."""

    @abstractmethod
    def engaged(self) -> list[int]:
        """Return the clients that are not `idle`."""

    @abstractmethod
    def versions(self) -> set[int]:
        """Return the versions that open tasks and reports in hand were trained from, and the present one."""

    @abstractmethod
    def in_hand(self) -> list[tuple[int, int, int]]:
        """Return the reports that wait for their step, in the order of arrival: (task, client, version)."""

    @abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""

    @abstractmethod
    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take over what `state` gave, in place of `start`."""

    @abstractmethod
    def _freed(self, time: float, clients: Sequence[int]) -> list[Action]:
        """Return what follows when these clients, who are still there, no longer work."""

    @abstractmethod
    def _gone(self, time: float, clients: Sequence[int], working: Sequence[int]) -> list[Action]:
        """Return what follows when these clients went away, of whom some were working."""
