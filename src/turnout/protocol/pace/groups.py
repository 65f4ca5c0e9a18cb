"""Asynchronous training by groups: clients that check in together do a round of their own, and its sum enters a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError, count, counted, positive
from turnout.protocol.pace.actions import Action, Choose, Course, Drop, Ignore, Reason, SetTimer, Step, Training
from turnout.protocol.pace.pace import Pace
from turnout.protocol.pace.phases import PhasedPace, Round, dropped

_PHASES_OF_A_GROUP = 16
"""By which a timer's number is that of the group, and what is left of its phase."""


@dataclass(frozen=True)
class BufferedGroups(Pace, name="buffered_groups"):
    """The server steps with every b groups of g clients, in the order in which they are done; groups do not wait for others.

    As soon as g clients are there and idle, they become a group: all train from the version of the moment, and then do the
    phases that the aggregation declares, among themselves. So the updates of a group can be masked (`SecureSum`), of which
    the server learns one sum. The group enters the buffer as one, with one staleness, and its clients wait until the step
    that uses it. Clients who drop out are not in the sum; a group of whom too few are left for a sum is given up.

    Attributes:
        buffer_size: b, groups in a step.
        group_size: g, clients of a group when it begins.
        concurrency: greatest number of groups at work at a time; None is as many as there are clients for.
        deadline: greatest length of a phase of a group in seconds; who has not answered by then drops out. None waits.
        max_staleness: groups that are staler than this when they are done are dropped; None uses all.

    Raises:
        ConfigurationError: for numbers out of range, and where there are too few clients to fill the buffer.

    Example:
        >>> import turnout as to
        >>> from turnout.simulation.schedule import schedule
        >>> unlike = to.Population(speed=to.speed.Speed(compute=to.delay.Constant(1.0), spread=1.0, per="task"))
        >>> steps = schedule(to.pace.BufferedGroups(2, group_size=3), unlike, num_clients=12, steps=30)
        >>> int(steps.contributions()["contributions"].sum())
        180

    Reference: Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022, whose buffer is of
    sums that single clients may not show; Bell et al., CCS 2020, for the sums.
    """

    forms_groups: ClassVar[bool] = True

    buffer_size: int = 2
    group_size: int = 5
    concurrency: int | None = None
    deadline: float | None = None
    max_staleness: int | None = None

    def __post_init__(self) -> None:
        count("buffer_size", self.buffer_size)
        count("group_size", self.group_size)
        if self.concurrency is not None:
            count("concurrency", self.concurrency, instead="Write None for as many as there are clients for")
        if self.deadline is not None:
            positive("deadline", self.deadline)
        if self.max_staleness is not None:
            count("max_staleness", self.max_staleness, least=0, instead="Write None to use all groups")

    def masks_together(self, num_clients: int) -> int:
        """Return how many clients are in one sum at most."""
        return min(self.group_size, num_clients)

    def bind(self, num_clients: int, course: Course = Training()) -> BoundGroups:  # noqa: B008  # a constant
        """Return the state machine for N clients.

        Raises:
            ConfigurationError: for phases before training, and where the buffer could never fill.
        """
        if course.phases[0] != "train" or course.continues:
            extra = "continue" if course.continues else course.phases[0]
            raise ConfigurationError(f"BufferedGroups begins by training, it cannot {extra}: write the pace Rounds()")
        if (needed := self.buffer_size * self.group_size) > num_clients:
            raise ConfigurationError(
                f"buffer_size: got {counted(self.buffer_size, 'group')} of {counted(self.group_size, 'client')}, which wait "
                f"for each other, and there are {num_clients} clients of {needed}: write fewer or smaller groups"
            )
        return BoundGroups(self, course)


class BoundGroups(PhasedPace):
    """`BufferedGroups` for one run.

    Attributes:
        options: the options.
        active: groups at work, by number.
        buffer: groups that are done and wait for their step, in the order in which they were done.
    """

    def __init__(self, options: BufferedGroups, course: Course) -> None:
        super().__init__(course)
        self.options = options
        self.active: dict[int, Round] = {}
        self.buffer: list[Round] = []
        self._of: dict[int, int] = {}  # client -> its group, at work or in the buffer
        self._begun = 0
        self._idle: list[int] = []  # who has left a group since somebody asked

    def start(self, time: float) -> list[Action]:
        """Ask for the first group."""
        del time
        return self._refill()

    def chosen(self, time: float, clients: Sequence[int], group: int = 0) -> list[Action]:
        """Begin a group of these clients, or go on with those of a group who are there."""
        if group:
            if clients:
                return self._ask(time, self.active[group], clients)
            return self._dissolve(self.active[group], "unsummed")
        if not clients:
            return []
        if taken := self._of.keys() & clients:
            raise ConfigurationError(f"client {min(taken)} is in group {self._of[min(taken)]}: choose one that is idle")
        self._begun += 1
        begun = Round(self.version, "train", self._begun, tuple(clients))
        self.active[begun.number] = begun
        self._of |= dict.fromkeys(clients, begun.number)
        return [*self._ask(time, begun, clients), *self._refill()]

    def _ask(self, time: float, group: Round, clients: Sequence[int]) -> list[Action]:
        """Ask clients of a group for its phase."""
        group.is_running = True
        actions: list[Action] = [self.open.ask(clients, group.version, group.phase)]
        deadline = self.options.deadline
        return actions if deadline is None else [*actions, SetTimer(self._timer(group), time + deadline)]

    def _timer(self, group: Round) -> int:
        """Return the number of the timer of a group's phase."""
        return group.number * _PHASES_OF_A_GROUP + self.phases.index(group.phase)

    @property
    def timers(self) -> set[int]:
        """The timers that still matter."""
        return {self._timer(group) for group in self.active.values() if group.is_running}

    def group_of(self, client: int) -> int:
        """Return the group that a client is in."""
        return self._of[client]

    @property
    def sums(self) -> set[int]:
        """The groups whose sums are still to be used."""
        return {*self.active, *(group.number for group in self.buffer)}

    def reported(self, time: float, client: int, task: int, version: int) -> list[Action]:
        """Keep the report, or drop it; `more` goes on with its group if that was the last one."""
        del time
        if (reason := self.open.why_not(task, client)) is not None:
            return [Ignore(task, client, reason)]
        group = self.active[self._of[client]]
        if version != self.open.end(task):
            return [Drop([task], [client], "wrong version")]
        group.reports.append((task, client))
        return []

    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Begin a group if enough are there."""
        del time, clients
        return self._refill()

    def expired(self, time: float, timer: int) -> list[Action]:
        """Close the phase whose deadline `timer` was set for."""
        del time
        group = self.active.get(timer // _PHASES_OF_A_GROUP)
        return [] if group is None or not group.is_running or timer != self._timer(group) else self._close(group)

    def idle(self, client: int) -> bool:
        """Return whether a client is in no group."""
        return client not in self._of

    def ignores(self, client: int, comes: bool) -> bool:
        """Whether there may be no further group, for a client that comes; whether a client that goes is in none."""
        return not self._may_begin if comes else self.idle(client)

    def engaged(self) -> list[int]:
        """Return the clients that are in a group."""
        return list(self._of)

    def versions(self) -> set[int]:
        """Return the versions that groups train or were trained from, and the present one."""
        return {self.version, *(group.version for group in (*self.active.values(), *self.buffer))}

    def in_hand(self) -> list[tuple[int, int, int]]:
        """Return the reports of training that wait: (task, client, version), group after group."""
        waiting = []
        for group in (*self.buffer, *self.active.values()):
            waiting += [(task, client, group.version) for task, client in group.trained or group.reports]
        return waiting

    def more(self) -> list[Action]:
        """Close the phase of a group in which nobody is at work any more, one group at a time."""
        for group in self.active.values():
            if group.is_running and not any(client in self.open.of for client in group.members):
                return self._close(group)
        return []

    def resume(self, time: float) -> list[Action]:
        """Give up the groups that were at work, and begin others."""
        del time
        self.open.end_all()
        unsummed = [drop for group in self.active.values() for drop in dropped(group.trained, "unsummed")]
        for group in self.active.values():
            self._leave(group)
        self.active.clear()
        return [*unsummed, *self._refill()]

    def _dissolve(self, group: Round, reason: Reason) -> list[Action]:
        """Drop what a group has trained; its clients are idle."""
        del self.active[group.number]
        self._leave(group)
        return [*dropped(group.trained, reason), *self._refill()]

    def _finish(self, round: Round) -> list[Action]:
        """Put a group that is done into the buffer, unless nobody trained or it is too stale; step if that fills it."""
        most = self.options.max_staleness
        if not round.trained:
            return self._dissolve(round, "unsummed")
        if most is not None and self.version - round.version > most:
            return self._dissolve(round, "stale")
        del self.active[round.number]
        self.buffer.append(round)
        if len(self.buffer) < self.options.buffer_size:
            return self._refill()
        used, self.buffer = self.buffer, []
        rows = [(task, client, group.version) for group in used for task, client in group.trained]
        columns = tuple(tuple(row[i] for row in rows) for i in range(3))
        step = Step(self.version, *columns, groups=tuple(group.number for group in used))
        self.version += 1
        for group in used:
            self._leave(group)
        return [step, *self._refill()]

    def _leave(self, group: Round) -> None:
        """Make the clients of a group idle, also those that dropped out of it before."""
        for client in group.members:
            del self._of[client]
        self._idle += group.members

    def freed(self) -> list[int]:
        """Return, once, who has left a group."""
        idle, self._idle = self._idle, []
        return idle

    def _refill(self) -> list[Action]:
        """Ask for a further group, if there may be one."""
        return [Choose(self.options.group_size, least=self.options.group_size)] if self._may_begin else []

    @property
    def _may_begin(self) -> bool:
        """True if a further group may begin."""
        return self.options.concurrency is None or len(self.active) < self.options.concurrency

    def _freed(self, time: float, clients: Sequence[int]) -> list[Action]:
        del time, clients
        return []

    def _gone(self, time: float, clients: Sequence[int], working: Sequence[int]) -> list[Action]:
        del time, clients, working
        return []

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        groups = [*self.active.values(), *self.buffer]
        facts = [
            (group.number, group.version, self.phases.index(group.phase), group.is_running, group.number in self.active)
            for group in groups
        ]
        members = [(group.number, client) for group in groups for client in group.members]
        reports = [
            (group.number, kind, task, client)
            for group in groups
            for kind, pairs in enumerate((group.reports, group.trained))
            for task, client in pairs
        ]
        return self.open.state() | {
            "version": np.array([self.version, self._begun]),
            "groups": np.array(facts, dtype=np.int64).reshape(-1, 5),
            "members": np.array(members, dtype=np.int64).reshape(-1, 2),
            "reports": np.array(reports, dtype=np.int64).reshape(-1, 4),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.open.restore(state)
        self.version, self._begun = state["version"].tolist()
        self.active, self.buffer, self._of = {}, [], {}
        members, reports = state["members"], state["reports"]
        for number, version, phase, running, active in state["groups"].tolist():
            of_group = reports[reports[:, 0] == number]
            pairs = [
                [(task, client) for task, client in of_group[of_group[:, 1] == kind, 2:].tolist()] for kind in (0, 1)
            ]
            clients = tuple(members[members[:, 0] == number, 1].tolist())
            group = Round(version, self.phases[phase], number, clients, *pairs, is_running=bool(running))
            self._of |= dict.fromkeys(clients, number)
            if active:
                self.active[number] = group
            else:
                self.buffer.append(group)
