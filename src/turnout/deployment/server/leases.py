"""Leases: the time for which a server counts a client as present without hearing from it."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from turnout.core.checks import count, positive


@dataclass(frozen=True)
class Leases:
    """Times for which a server counts silent clients as present.

    Attributes:
        heartbeat: seconds between two signs of life of a client at work.
        missed: so many of them may be missed before its task is given to somebody else.
        grace: seconds that a waiting client may come later than it was asked to.
        longest_wait: most seconds that a question for work is held.
        task_deadline: greatest age of a task in seconds. A client that still works on an older one is treated as gone until
            it asks for work again, so that no client can hold up the others. None waits for as long as it sends heartbeats.
        checkins: questions for work per second that the server wants at most; beyond, clients are sent away for longer.
        max_waiting: questions for work that are held at a time.
    """

    heartbeat: float = 10.0
    missed: int = 3
    grace: float = 10.0
    longest_wait: float = 55.0
    task_deadline: float | None = None
    checkins: float = 1000.0
    max_waiting: int = 20_000

    def __post_init__(self) -> None:
        for name in ("heartbeat", "grace", "longest_wait", "checkins"):
            positive(name, getattr(self, name))
        if self.task_deadline is not None:
            positive("task_deadline", self.task_deadline)
        count("missed", self.missed)
        count("max_waiting", self.max_waiting)

    @property
    def at_work(self) -> float:
        """Seconds after which a silent client at work is given up."""
        return self.heartbeat * self.missed


class RunClock:
    """Seconds that a server has run, over all its starts; clocks that are put forward or back do not matter."""

    def __init__(self, before: float = 0.0) -> None:
        self._before, self._begun = before, time.monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return self._before + time.monotonic() - self._begun


class Attendance:
    """Track which clients are present, and until when. All methods may be called by any thread.

    Args:
        clock: seconds that the server has run.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.RLock()
        self._until: dict[int, float] = {}
        # A heap of (time, client), with one valid entry per client: that of `_listed`, which is never later than `_until`.
        self._ends: list[tuple[float, int]] = []
        self._listed: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def believe(self, client: int, seconds: float) -> bool:
        """Count a client as present for so many seconds from now; return whether it was absent before."""
        with self._lock:
            comes = client not in self._until
            self._set(client, self._clock() + seconds)
            return comes

    def believe_at_least(self, client: int, seconds: float) -> None:
        """Extend the lease of a present client to at least so many seconds from now."""
        with self._lock:
            if client in self._until:
                self._set(client, max(self._until[client], self._clock() + seconds))

    def heard(self, client: int, seconds: float) -> None:
        """Have the lease of a present client end in so many seconds: it may become longer or shorter by this."""
        with self._lock:
            if client in self._until:
                self._set(client, self._clock() + seconds)

    def leaves(self, client: int) -> bool:
        """Remove a client; return whether it was present."""
        with self._lock:
            self._listed.pop(client, None)
            return self._until.pop(client, None) is not None

    def silent(self) -> list[int]:
        """Remove the clients whose lease has ended, and return them."""
        now, gone = self._clock(), list[int]()
        with self._lock:
            while self._ends and self._ends[0][0] <= now:
                end, client = heapq.heappop(self._ends)
                if self._listed.get(client) != end:
                    continue  # an earlier end was listed since, or the client left
                del self._listed[client]
                until = self._until[client]
                if until > now:  # the lease was extended since
                    self._set(client, until)
                    continue
                del self._until[client]
                gone.append(client)
        return gone

    def next_end(self) -> float | None:
        """Return a time before which no lease ends; None without clients."""
        with self._lock:
            return self._ends[0][0] if self._ends else None

    def _set(self, client: int, until: float) -> None:
        """Set the end of a lease. A heap entry that is earlier stays, and `silent` moves it when it comes up."""
        self._until[client] = until
        if until < self._listed.get(client, math.inf):
            heapq.heappush(self._ends, (until, client))
            self._listed[client] = until
