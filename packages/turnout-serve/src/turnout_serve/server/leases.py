"""Leases: the time for which a server counts a client as present without hearing from it, and the clock of that."""

from __future__ import annotations

import time
from dataclasses import dataclass

from turnout.core.checks import count, positive


@dataclass(frozen=True)
class Leases:
    """Times for which a server counts silent clients as present.

    Attributes:
        heartbeat: seconds between two heartbeats of a client at work.
        missed: heartbeats in a row that may be missing before the client counts as absent and its task is dropped.
        grace: seconds by which a client may be later than the server has asked it to come back.
        longest_wait: maximum seconds of a long poll for work.
        task_deadline: maximum age of a task in seconds. A client that still works on an older one counts as absent until it
            asks for work again, so that no client can hold up the others. None waits for as long as it sends heartbeats.
        checkins: target of requests for work per second; with more clients, they are told to come back later.
        max_waiting: maximum number of long polls at a time.
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
        """Seconds without a heartbeat after which a client at work counts as absent."""
        return self.heartbeat * self.missed


class RunClock:
    """Seconds that a server has run, summed over its restarts; monotonic, so changes of the system clock have no effect."""

    def __init__(self, before: float = 0.0) -> None:
        self._before, self._begun = before, time.monotonic()

    def __call__(self) -> float:
        """Return the seconds."""
        return self._before + time.monotonic() - self._begun
