"""Buffered asynchronous training: the server steps whenever a buffer of reports is full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np

from turnout.core.checks import ConfigurationError, count, counted, refuse
from turnout.core.ranges import Count
from turnout.protocol.pace.actions import Action, Choose, Course, Drop, Step, Training
from turnout.protocol.pace.pace import BoundPace, Pace
from turnout.protocol.pace.tasks import rows

Waits = Literal["never", "if_current", "always"]


@dataclass(frozen=True)
class Buffered(Pace, name="buffered"):
    """Train asynchronously, with a server step whenever b reports have arrived (FedBuff).

    A client trains from the version that is current when its task is sent, and reports when it is done, even if the
    server has taken steps meanwhile: the staleness of its report is ``version at the step - version of the task``. When
    a report fills the buffer, the server steps before it sends the next task, so that its client continues from the new
    version. With ``buffer_size=1`` training is fully asynchronous.

    Attributes:
        buffer_size: b, the number of reports in a step, >= 1.
        concurrency: maximum number of clients that work at a time; None is all clients.
        max_staleness: largest staleness of a report, >= 0; staler reports are dropped. None uses all reports.
        reselect: if False, a client whose task has ended gets the next one, as long as it is available. If True, the
            server selects among all idle clients, uniformly at random.
        waits: the clients that wait for the next step after a report. ``"never"``: none, so that a buffer may have
            several reports of a client. ``"if_current"``: those that trained from the present version, as in
            FedStaleWeight's experiments. ``"always"``: all, so that a buffer has at most one report of a client, as the
            proofs of FedStaleWeight and FedBuff assume. A waiting client counts toward `concurrency` unless `reselect`
            is set.
        starts_with_all: if True, the first step uses one report of every client in place of b reports, as in ACE.
            Clients that have reported wait. The server waits for clients that are unavailable; a simulation fails if
            one never becomes available.

    Raises:
        ConfigurationError: if a number is out of range, if a step needs more than 1,000 reports of each working client,
            if so many clients wait that the buffer never fills, or if `starts_with_all` is set and not all clients may
            work at a time.

    Example:
        >>> import turnout as to
        >>> from turnout.simulation.schedule import schedule
        >>> unlike = to.Population(speed=to.speed.Speed(compute=to.delay.Constant(1.0), spread=1.0, per="task"))
        >>> schedule(to.pace.Buffered(2), unlike, num_clients=4, steps=30).contributions()["contributions"].tolist()
        [25, 10, 11, 14]

    References: Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022; Ma et al.,
    "FedStaleWeight: buffered asynchronous federated learning with fair aggregation via staleness reweighting", 2024.
    """

    buffer_size: Count = 10
    concurrency: Annotated[int, partial(count, instead="Write None for everyone")] | None = None
    max_staleness: Annotated[int, partial(count, least=0, instead="Write None to use all reports")] | None = None
    reselect: bool = False
    waits: Waits = "never"
    starts_with_all: bool = False

    def bind(self, num_clients: int, course: Course = Training()) -> BoundBuffered:  # noqa: B008  # a constant
        """Return the state machine for N clients; training is the only phase that it supports."""
        count("num_clients", num_clients)
        if extra := [phase for phase in course.phases if phase != "train"] or ["continue"] * course.continues:
            raise ConfigurationError(
                f"Buffered trains and does nothing else, it cannot {extra[0]}: write the pace Rounds()"
            )
        concurrency = num_clients if self.concurrency is None else self.concurrency
        self._check_sizes(num_clients, concurrency)
        return BoundBuffered(self, concurrency, num_clients)

    def _check_sizes(self, num_clients: int, concurrency: int) -> None:
        """Check that N clients can fill the buffer, in a reasonable number of reports of each."""
        if self.buffer_size > _MOST_REPORTS * concurrency:
            raise ConfigurationError(
                f"buffer_size: got {self.buffer_size:,}, for which each of {counted(concurrency, 'client')} at work would "
                f"report more than {_MOST_REPORTS:,} times before a step: write at most {_MOST_REPORTS * concurrency}"
            )
        if concurrency > num_clients:
            needed = f"at most the number of clients, {num_clients}"
            raise refuse("concurrency", given=concurrency, needed=needed, instead="Write None for everyone")
        if self.starts_with_all and concurrency < num_clients:
            raise ConfigurationError(
                f"starts_with_all: the first step has a report of each of {num_clients} clients, but with "
                f"concurrency={concurrency} not all of them may work: write concurrency=None"
            )
        most = num_clients if self.reselect else concurrency
        if self.waits != "never" and self.buffer_size > most:
            raise ConfigurationError(
                f"buffer_size: got {self.buffer_size}, but with waits={self.waits!r} only {most} clients can report before "
                f"all of them wait, so the buffer would never fill: write buffer_size={most} or less, or waits='never'"
            )


_MOST_REPORTS = 1_000
"""Maximum number of reports of a working client in one step.

A larger buffer is a mistake that would be noticed late, because a run records nothing before its first step.
"""


class BoundBuffered(BoundPace):
    """The state machine of `Buffered` for N clients.

    Attributes:
        options: the options.
        concurrency: maximum number of clients that work at a time.
        num_clients: N.
        waiting: clients that wait for the next step, in the order of their reports; each has a report in the buffer.
    """

    def __init__(self, options: Buffered, concurrency: int, num_clients: int) -> None:
        super().__init__()
        self.options, self.concurrency, self.num_clients = options, concurrency, num_clients
        self.waiting: dict[int, None] = {}
        self._buffer: list[tuple[int, int, int]] = []  # task, client, version

    @property
    def num_free(self) -> int:
        """The number of clients that may get a task now."""
        return self.concurrency - len(self.open.task_of) - (0 if self.options.reselect else len(self.waiting))

    @property
    def waits_for(self) -> list[int]:
        """The clients whose reports are still missing for a first step with all clients; else empty."""
        if not self._needs_everyone():
            return []
        return sorted(set(range(self.num_clients)) - {client for _, client, _ in self._buffer})

    def chosen(self, time: float, clients: Sequence[int], group: int = 0) -> list[Action]:
        """Send tasks with the present version to the clients, if any."""
        if len(clients) > self.num_free:
            raise refuse("clients", given=len(clients), needed=f"at most {self.num_free}, the number of free places")
        if self.waiting and (waiting := self.waiting.keys() & clients):
            raise ConfigurationError(f"client {min(waiting)} waits for the next step: choose one that is idle")
        return [self.open.ask(clients, self.version)] if clients else []

    def _arrived(self, time: float, client: int, task: int, trained: int) -> list[Action]:
        """Buffer or drop the report, step if the buffer is full, and fill the free place."""
        most = self.options.max_staleness
        if most is not None and self.version - trained > most:
            return [Drop([task], [client], "stale"), *self._refill([client])]
        self._buffer.append((task, client, trained))
        if self._full():
            released = [*self.waiting, client]
            return [self._step(), *self._refill(released)]
        waits = "always" if self._needs_everyone() else self.options.waits
        if waits == "always" or (waits == "if_current" and trained == self.version):
            self.waiting[client] = None
            return self._refill() if self.options.reselect else []
        return self._refill([client])

    def joined(self, time: float, clients: Sequence[int] = ()) -> list[Action]:
        """Fill free places."""
        return self._refill(clients)

    def grow(self, num_clients: int) -> None:
        """Let new clients work beside the others, if all may work at a time."""
        self.num_clients = num_clients
        if self.options.concurrency is None:
            self.concurrency = num_clients

    def idle(self, client: int) -> bool:
        """Return True if a client neither works nor waits."""
        return client not in self.open.task_of and client not in self.waiting

    def ignores(self, client: int, joins: bool) -> bool:
        """Return True if no place is free (a client joins), or if the client neither works nor waits (it leaves)."""
        return self.num_free <= 0 if joins else self.idle(client)

    def busy(self) -> list[int]:
        """Return the clients that work or wait."""
        return [*self.open.task_of, *self.waiting]

    def pending(self) -> list[tuple[int, int, int]]:
        """Return the buffered reports, (task, client, version), in the order of arrival."""
        return list(self._buffer)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as int64 arrays."""
        waiting = np.array(list(self.waiting), dtype=np.int64)
        kept = {"version": np.array(self.version), "buffer": rows(self._buffer, 3), "waiting": waiting}
        return self.open.state() | kept

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that `state` returned."""
        self.open.restore(state)
        self.version = int(state["version"])
        self._buffer = [(task, client, version) for task, client, version in state["buffer"].tolist()]
        self.waiting = dict.fromkeys(state["waiting"].tolist())

    def _needs_everyone(self) -> bool:
        """Return True if the next step is the first one and needs a report of every client."""
        return self.options.starts_with_all and self.version == 0

    def _full(self) -> bool:
        """Return True if the buffer holds all reports of a step."""
        if self._needs_everyone():
            return len({client for _, client, _ in self._buffer}) == self.num_clients
        return len(self._buffer) == self.options.buffer_size

    def _step(self) -> Step:
        """Move the buffer into a step."""
        tasks, clients, versions = zip(*self._buffer, strict=True)
        step = Step(self.version, tasks, clients, versions)
        self.version += 1
        self._buffer.clear()
        self.waiting.clear()
        return step

    def _refill(self, first: Sequence[int] = ()) -> list[Action]:
        """Select clients for free places; those in `first` are preferred unless the server reselects."""
        free = self.num_free
        return [Choose(free, () if self.options.reselect else first)] if free > 0 else []

    def _task_ended(self, clients: Sequence[int]) -> list[Action]:
        return self._refill(clients)

    def _clients_left(self, clients: Sequence[int], working: Sequence[int]) -> list[Action]:
        waited = [client for client in clients if client in self.waiting]
        for client in waited:
            del self.waiting[client]  # its report stays in the buffer
        return self._refill() if working or waited else []
