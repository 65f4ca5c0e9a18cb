"""Asynchronous training by groups: each group of clients has its own round, whose sum enters a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import numpy as np

from turnout.core.checks import ConfigurationError, count, counted
from turnout.core.ranges import Count, Positive
from turnout.protocol.pace.actions import Action, Choose, Course, Reason, SetTimer, Step, Training
from turnout.protocol.pace.pace import Pace
from turnout.protocol.pace.phases import PhasedPace, Round, dropped
from turnout.protocol.pace.tasks import rows

_MAX_PHASES = 16
"""The timer of a group's phase has the number ``group * _MAX_PHASES + index of the phase``."""


@dataclass(frozen=True)
class BufferedGroups(Pace, name="buffered_groups"):
    """Train asynchronously by groups, with a server step whenever b groups of g clients are complete.

    As soon as g clients are available and idle, they form a group: all of them train from the present version, and
    complete the phases that the aggregation declares among themselves. The updates of a group can therefore be masked
    (`SecureSum`), so that the server learns only their sum. A group enters the buffer as a whole, with one staleness,
    and its clients wait for the step that uses it. Clients that drop out are not in the sum; a group with too few
    clients for a sum is dropped.

    Attributes:
        buffer_size: b, the number of groups in a step, >= 1.
        group_size: g, the number of clients in a group when it starts, >= 1.
        concurrency: maximum number of groups that work at a time; None is as many as the clients allow.
        deadline: maximum duration of a group's phase in seconds, after which clients that have not answered drop out;
            None waits for all.
        max_staleness: largest staleness of a group on completion, >= 0; staler groups are dropped. None uses all
            groups.

    Raises:
        ConfigurationError: if a number is out of range, or if there are too few clients to fill the buffer.

    Example:
        >>> import turnout as to
        >>> from turnout.simulation.schedule import schedule
        >>> unlike = to.Population(speed=to.speed.Speed(compute=to.delay.Constant(1.0), spread=1.0, per="task"))
        >>> steps = schedule(to.pace.BufferedGroups(2, group_size=3), unlike, num_clients=12, steps=30)
        >>> int(steps.contributions()["contributions"].sum())
        180

    References: Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022, for the buffer
    of secure sums; Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020, for the
    sums.
    """

    forms_groups: ClassVar[bool] = True

    buffer_size: Count = 2
    group_size: Count = 5
    concurrency: Annotated[int, partial(count, instead="Write None for as many as there are clients for")] | None = None
    deadline: Positive | None = None
    max_staleness: Annotated[int, partial(count, least=0, instead="Write None to use all groups")] | None = None

    def masks_together(self, num_clients: int) -> int:
        """Return the maximum number of clients in one sum."""
        return min(self.group_size, num_clients)

    def bind(self, num_clients: int, course: Course = Training()) -> BoundGroups:  # noqa: B008  # a constant
        """Return the state machine for N clients.

        Raises:
            ConfigurationError: if there are phases before training, or if the buffer could never fill.
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
    """The state machine of `BufferedGroups`.

    Attributes:
        options: the options.
        active: working groups, by number.
        buffer: completed groups that wait for their step, in the order of completion.
    """

    def __init__(self, options: BufferedGroups, course: Course) -> None:
        super().__init__(course)
        self.options = options
        self.active: dict[int, Round] = {}
        self.buffer: list[Round] = []
        self._group_of: dict[int, int] = {}  # group of each client, including clients that dropped out of their group
        self._started = 0  # number of groups so far
        self._newly_idle: list[int] = []

    def chosen(self, time: float, clients: Sequence[int], group: int = 0) -> list[Action]:
        """Start a group of these clients, or the next phase of a group with its clients that are still available."""
        if group:
            asked = self.active[group]
            return self._ask(time, asked, clients) if clients else self._dissolve(asked, "unsummed")
        if not clients:
            return []
        if taken := self._group_of.keys() & clients:
            raise ConfigurationError(
                f"client {min(taken)} is in group {self._group_of[min(taken)]}: choose one that is idle"
            )
        self._started += 1
        self._group_of |= dict.fromkeys(clients, self._started)
        started = self.active[self._started] = Round(self.version, "train", self._started, list(clients))
        return [*self._ask(time, started, clients), *self._refill()]

    def _ask(self, time: float, group: Round, clients: Sequence[int]) -> list[Action]:
        """Start the phase of a group with these clients."""
        group.is_running = True
        actions: list[Action] = [self.open.ask(clients, group.version, group.phase)]
        deadline = self.options.deadline
        return actions if deadline is None else [*actions, SetTimer(self._timer(group), time + deadline)]

    def _timer(self, group: Round) -> int:
        """Return the number of the timer of a group's phase."""
        return group.number * _MAX_PHASES + self.phases.index(group.phase)

    @property
    def timers(self) -> set[int]:
        """The timers of the phases of working groups."""
        return {self._timer(group) for group in self.active.values() if group.is_running}

    def group_of(self, client: int) -> int:
        """Return the group of a client."""
        return self._group_of[client]

    @property
    def live_groups(self) -> set[int]:
        """The groups that work or wait for their step."""
        return {*self.active, *(group.number for group in self.buffer)}

    def _arrived(self, time: float, client: int, task: int, trained: int) -> list[Action]:
        """Store the report; `poll` closes the phase of the group after its last report."""
        self.active[self._group_of[client]].reports.append((task, client))
        return []

    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Start a group if enough clients are available."""
        return self._refill()

    def expired(self, time: float, timer: int) -> list[Action]:
        """Close the phase of a group at its deadline."""
        group = self.active.get(timer // _MAX_PHASES)
        return [] if group is None or not group.is_running or timer != self._timer(group) else self._close(group)

    def idle(self, client: int) -> bool:
        """Return True if a client is in no group."""
        return client not in self._group_of

    def ignores(self, client: int, joins: bool) -> bool:
        """Return True if no group may start (a client joins), or if the client is in no group (it leaves)."""
        return not self._may_begin if joins else self.idle(client)

    def busy(self) -> list[int]:
        """Return the clients in groups."""
        return list(self._group_of)

    def pending(self) -> list[tuple[int, int, int]]:
        """Return the reports of training that wait for a step, (task, client, version), group after group."""
        waiting = []
        for group in (*self.buffer, *self.active.values()):
            waiting += [(task, client, group.version) for task, client in group.trained or group.reports]
        return waiting

    def poll(self) -> list[Action]:
        """Close the phase of one group whose clients have all reported or dropped out."""
        for group in self.active.values():
            if group.is_running and not any(client in self.open.task_of for client in group.members):
                return self._close(group)
        return []

    def resume(self, time: float) -> list[Action]:
        """Drop the groups that were working, and start new ones."""
        self.open.end_all()
        ended = list(self.active.values())
        for group in ended:
            self._remove(group)
        self.active = {}
        return [*(drop for group in ended for drop in dropped(group.trained, "unsummed")), *self._refill()]

    def _remove(self, group: Round) -> None:
        """Make all clients of a group idle, including those that dropped out of it before."""
        for client in group.members:
            del self._group_of[client]
        self._newly_idle += group.members

    def _dissolve(self, group: Round, reason: Reason) -> list[Action]:
        """Drop the reports of a working group."""
        self._remove(self.active.pop(group.number))
        return [*dropped(group.trained, reason), *self._refill()]

    def _finish(self, round: Round) -> list[Action]:
        """Buffer a completed group, or drop it if it is empty or too stale; step if the buffer is full."""
        most = self.options.max_staleness
        if not round.trained:
            return self._dissolve(round, "unsummed")
        if most is not None and self.version - round.version > most:
            return self._dissolve(round, "stale")
        self.buffer.append(self.active.pop(round.number))
        if len(self.buffer) < self.options.buffer_size:
            return self._refill()
        used, self.buffer = self.buffer, []
        rows = [(task, client, group.version) for group in used for task, client in group.trained]
        step = Step(self.version, *zip(*rows, strict=True), groups=tuple(group.number for group in used))
        self.version += 1
        for group in used:
            self._remove(group)
        return [step, *self._refill()]

    def newly_idle(self) -> list[int]:
        """Return, once, the clients that left a group."""
        idle, self._newly_idle = self._newly_idle, []
        return idle

    def _refill(self) -> list[Action]:
        """Select the clients of another group, if one may start."""
        return [Choose(self.options.group_size, least=self.options.group_size)] if self._may_begin else []

    @property
    def _may_begin(self) -> bool:
        """True if another group may start."""
        return self.options.concurrency is None or len(self.active) < self.options.concurrency

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        groups = [*self.active.values(), *self.buffer]
        facts = [
            (g.number, g.version, self.phases.index(g.phase), g.is_running, g.number in self.active) for g in groups
        ]
        reports = [
            (group.number, kind, task, client)
            for group in groups
            for kind, pairs in enumerate((group.reports, group.trained))
            for task, client in pairs
        ]
        return self.open.state() | {
            "version": np.array([self.version, self._started]),
            "groups": rows(facts, 5),
            "members": rows([(group.number, client) for group in groups for client in group.members], 2),
            "reports": rows(reports, 4),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.open.restore(state)
        self.version, self._started = state["version"].tolist()
        self.active, self.buffer, self._group_of = {}, [], {}
        groups = dict[int, Round]()
        for number, version, phase, is_running, is_active in state["groups"].tolist():
            group = groups[number] = Round(version, self.phases[phase], number, is_running=bool(is_running))
            if is_active:
                self.active[number] = group
            else:
                self.buffer.append(group)
        for number, client in state["members"].tolist():
            groups[number].members.append(client)
            self._group_of[client] = number
        for number, kind, task, client in state["reports"].tolist():
            (groups[number].reports, groups[number].trained)[kind].append((task, client))
