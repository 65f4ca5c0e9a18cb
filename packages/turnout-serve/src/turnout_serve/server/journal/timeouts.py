"""Turn the passing of time into events: leases of clients, deadlines and suspensions, timers of the pace."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Effects, Outcome
from turnout_serve.server.journal.events import Event
from turnout_serve.server.leases import Leases

_MAX_LOST = 16  # tasks in a row that a client may lose before it is suspended
_MAX_SECONDS = 3600.0  # of a suspension


class Timeouts:
    """Track what is due at which time, and queue an event for it.

    Time itself is not in the journal. What is due becomes an entry and is applied as one, so that a replay, which has no
    clock, has it at the same place.

    Args:
        driver: the run.
        leases: times for which silent clients count as present.
        clock: seconds that the server has run.
        put: function that queues an event.

    Attributes:
        put: as given.
        presence: the leases of the clients that are present.
        suspension: function that returns the seconds until a client that has lost many tasks in a row may have another one.
    """

    def __init__(
        self, driver: Driver, leases: Leases, clock: Callable[[], float], put: Callable[[Event], Future[Any]]
    ) -> None:
        self._driver, self._clock, self.put = driver, clock, put
        self._at_work, self._task_deadline = leases.at_work, leases.task_deadline
        # A lease and its event change under one lock. Otherwise two threads could queue the join and the leave of a client
        # in another order than they have changed its lease, and the journal would end with the client in the wrong state.
        self._lock = threading.RLock()
        self.presence = Presence(clock)
        self._lost = LostTasks(clock)
        self.suspension = self._lost.wait
        self._timers: list[tuple[float, int]] = []  # a heap of (time, timer)
        self._deadlines: list[tuple[float, int, int]] = []  # a heap of (time, client, task)
        now = clock()
        self._absence = self._at_work + leases.grace + leases.longest_wait
        for client in driver.present():  # leases are not in the journal
            self.presence.start(client, self._absence)
        self._set_deadlines(driver.present())
        timers = driver.surveys.timers | ({} if driver.run is None else driver.run.tasks.timers)
        for timer, due in timers.items():
            heapq.heappush(self._timers, (max(due, now), timer))

    def join(self, client: int, seconds: float) -> None:
        """Start or renew the lease of a client that asks for work; queue a join if it was absent."""
        with self._lock:
            if self.presence.start(client, seconds):
                self.put(Event("join", client))

    def leave(self, client: int) -> Future[None]:
        """End the lease of a client; queue a leave if it was present."""
        with self._lock:
            if self.presence.end(client):
                return self.put(Event("leave", client))
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def renew(self, client: int) -> None:
        """Renew the lease of a client at work."""
        self.presence.renew(client, self._at_work)

    def forgive(self, seconds: float) -> None:
        """Give all clients the time to notice that the server is back, after so many seconds in which it could write nothing.

        Timers of the pace are put off by these seconds, in which no client could report.
        """
        with self._lock:
            self._timers = [(due + seconds, timer) for due, timer in self._timers]
            for client in self._driver.present():
                self.presence.extend(client, self._absence)
            self._deadlines.clear()
            self._set_deadlines(self._driver.present())

    def update(self, effects: Effects) -> None:
        """Set the leases, deadlines and timers that follow from an entry."""
        with self._lock:
            for client in (*effects.assigned, *effects.surveyed):
                self.presence.extend(client, self._at_work)
            self._set_deadlines(effects.assigned)
            # Clients have had no task while the step before it was computed, which may take as long as a whole deadline.
            delay = max(0.0, self._clock() - effects.time)
            for timer, due in effects.timers:
                heapq.heappush(self._timers, (due + delay, timer))
            for client in self._lost.note(effects.outcomes):
                self.leave(client)

    def expire(self) -> float:
        """Queue an event for all that is due; return the seconds until more can be, a second at most."""
        now = self._clock()
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                self.put(Event("timer", data={"timer": heapq.heappop(self._timers)[1]}))
            for client in self.presence.expired():
                self.put(Event("leave", client))
            for client in self._late(now):
                self.put(Event("leave", client, data={"reason": "late"}))
            due = [heap[0][0] for heap in (self._timers, self._deadlines) if heap]
            if (end := self.presence.next_end()) is not None:
                due.append(end)
        return max(0.0, min([*due, now + 1.0]) - now)

    def _late(self, now: float) -> Iterator[int]:
        """Yield the clients whose task has passed its deadline, after ending their lease."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, client, task = heapq.heappop(self._deadlines)
            if self._driver.tasks.get(client, task) is not None and self.presence.end(client):
                yield client

    def _set_deadlines(self, clients: Iterable[int]) -> None:
        """Set the deadlines of the training tasks of clients; after a restart, they begin anew."""
        if self._task_deadline is None:
            return
        due = self._clock() + self._task_deadline
        for client in clients:
            if (task := self._driver.tasks.training_of(client)) is not None:
                heapq.heappush(self._deadlines, (due, client, task.task))


class LostTasks:
    """Suspend clients that take tasks and send no report: after 16 in a row, for twice as long each time, up to an hour.

    Tasks that the pace ends (late, stale) do not count. A report resets the count, and so does a restart of the server.

    Args:
        clock: seconds that the server has run.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lost: dict[int, int] = {}
        self._until: dict[int, float] = {}

    def note(self, outcomes: Iterable[Outcome]) -> list[int]:
        """Count outcomes of tasks; return the clients that are suspended by them."""
        suspended = []
        for outcome in outcomes:
            if outcome.outcome == "taken":
                self._lost.pop(outcome.client, None)
                self._until.pop(outcome.client, None)
            elif outcome.outcome in ("left", "died") and outcome.task < FIRST_TASK:
                lost = self._lost[outcome.client] = self._lost.get(outcome.client, 0) + 1
                if lost >= _MAX_LOST:
                    self._until[outcome.client] = self._clock() + min(_MAX_SECONDS, 2.0 ** min(lost - _MAX_LOST, 12))
                    suspended.append(outcome.client)
        return suspended

    def wait(self, client: int) -> float:
        """Return the seconds until a client may have a task again."""
        return max(0.0, self._until.get(client, 0.0) - self._clock())


class Presence:
    """Track which clients are present, and until when. All methods may be called by any thread.

    Args:
        clock: seconds that the server has run.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.RLock()
        self._until: dict[int, float] = {}
        # Leases are renewed far more often than they end, so the heap of (time, client) is updated lazily. Each present
        # client has one valid entry, that of `_listed`, which is never later than `_until`; `expired` moves it there.
        self._ends: list[tuple[float, int]] = []
        self._listed: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def start(self, client: int, seconds: float) -> bool:
        """Set the lease of a client to so many seconds from now; return whether it was absent before."""
        with self._lock:
            absent = client not in self._until
            self._set(client, self._clock() + seconds)
            return absent

    def renew(self, client: int, seconds: float) -> None:
        """Set the lease of a present client to so many seconds from now, which may make it shorter."""
        with self._lock:
            if client in self._until:
                self._set(client, self._clock() + seconds)

    def extend(self, client: int, seconds: float) -> None:
        """Extend the lease of a present client to at least so many seconds from now."""
        with self._lock:
            if client in self._until:
                self._set(client, max(self._until[client], self._clock() + seconds))

    def end(self, client: int) -> bool:
        """End the lease of a client; return whether it was present."""
        with self._lock:
            self._listed.pop(client, None)
            return self._until.pop(client, None) is not None

    def expired(self) -> list[int]:
        """Remove the clients whose lease has ended, and return them."""
        now, clients = self._clock(), list[int]()
        with self._lock:
            while self._ends and self._ends[0][0] <= now:
                end, client = heapq.heappop(self._ends)
                if self._listed.get(client) != end:
                    continue  # stale: an earlier end was listed since, or the client left
                del self._listed[client]
                until = self._until[client]
                if until > now:  # the lease was extended since: list its present end
                    self._set(client, until)
                    continue
                del self._until[client]
                clients.append(client)
        return clients

    def next_end(self) -> float | None:
        """Return a time before which no lease ends; None without clients."""
        with self._lock:
            return self._ends[0][0] if self._ends else None

    def _set(self, client: int, until: float) -> None:
        """Set the end of a lease; only a shorter lease needs a new heap entry at once."""
        self._until[client] = until
        if until < self._listed.get(client, math.inf):
            heapq.heappush(self._ends, (until, client))
            self._listed[client] = until
