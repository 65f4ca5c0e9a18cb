"""The clients that are present, each until its lease ends."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable


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
