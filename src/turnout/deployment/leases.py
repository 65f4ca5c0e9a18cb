"""How long a server believes that a client is there, and by which clock."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from turnout.core.checks import count, positive


@dataclass(frozen=True)
class Leases:
    """How long a server believes in clients that it does not hear.

    Attributes:
        heartbeat: seconds between two signs of life of a client at work.
        missed: so many of them may be missed before its task is given to somebody else.
        grace: seconds that a waiting client may come later than it was asked to.
        longest_wait: most seconds that a question for work is held.
        checkins: questions for work per second that the server wants at most; beyond, clients are sent away for longer.
        max_waiting: questions for work that are held at a time.
    """

    heartbeat: float = 10.0
    missed: int = 3
    grace: float = 10.0
    longest_wait: float = 55.0
    checkins: float = 1000.0
    max_waiting: int = 20_000

    def __post_init__(self) -> None:
        for name in ("heartbeat", "grace", "longest_wait", "checkins"):
            positive(name, getattr(self, name))
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
    """Which clients are believed to be there, and until when. Any thread may ask and tell.

    Args:
        clock: seconds that the server has run.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.RLock()
        self._until: dict[int, float] = {}
        self._ends: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._until)

    def believe(self, client: int, seconds: float) -> bool:
        """Believe that a client is there for so long; return whether it has just come."""
        return self._believe(client, self._clock() + seconds)

    def believe_at_least(self, client: int, seconds: float) -> None:
        """Believe so for so long, or for longer where that is believed already."""
        with self._lock:
            self._believe(client, max(self._until.get(client, 0.0), self._clock() + seconds))

    def heard(self, client: int, seconds: float) -> None:
        """Believe so for so long, if it has come and not gone since."""
        with self._lock:
            if client in self._until:
                self._believe(client, self._clock() + seconds)

    def leaves(self, client: int) -> bool:
        """Note that a client goes; return whether it was there."""
        with self._lock:
            return self._until.pop(client, None) is not None

    def silent(self) -> list[int]:
        """Return who has not been heard for too long, and is believed to be gone from now on."""
        now, gone = self._clock(), list[int]()
        with self._lock:
            while self._ends and self._ends[0][0] <= now:
                _, client = heapq.heappop(self._ends)
                until = self._until.get(client)
                if until is None:
                    continue
                if until > now:  # it was heard in the meantime
                    heapq.heappush(self._ends, (until, client))
                    continue
                del self._until[client]
                gone.append(client)
        return gone

    def next_end(self) -> float | None:
        """Return before when nobody is given up."""
        with self._lock:
            return self._ends[0][0] if self._ends else None

    def _believe(self, client: int, until: float) -> bool:
        with self._lock:
            comes = client not in self._until
            if comes:
                heapq.heappush(self._ends, (until, client))
            self._until[client] = until
            return comes
