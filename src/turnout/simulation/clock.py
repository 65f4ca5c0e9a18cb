"""Queue events in virtual time, in an order that does not depend on the order of insertion."""

from __future__ import annotations

import heapq
import math

import numpy as np

from turnout.core.checks import refuse

_KIND = 1 << 48  # an event is one integer, kind * _KIND + number, which sorts as (kind, number)


class Clock:
    """A queue of events, ordered by time, then kind, then number.

    An event is identified by its kind and its number, both integers >= 0. Setting an event again moves it.

    Attributes:
        now: the time of the last event.

    Example:
        >>> clock = Clock()
        >>> clock.set(1, 7, 2.5)
        >>> clock.set(0, 3, 2.5)
        >>> clock.pop()
        (2.5, 0, 3)
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int]] = []
        # Moved and canceled events stay in the heap until they reach the top; an entry is valid if its time is in here.
        self._due: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def set(self, kind: int, number: int, time: float) -> None:
        """Schedule an event at `time`; inf cancels it.

        Raises:
            ConfigurationError: if the time is in the past, or NaN.
        """
        if not time >= self.now:
            raise refuse("time", given=time, needed=f"a time from now ({self.now}) on")
        if time == math.inf:
            self.cancel(kind, number)
            return
        event = kind * _KIND + number
        self._due[event] = time
        heapq.heappush(self._heap, (time, event))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._rebuild()

    def cancel(self, kind: int, number: int) -> None:
        """Cancel an event, if it is set."""
        self._due.pop(kind * _KIND + number, None)

    def pop(self, until: float = math.inf) -> tuple[float, int, int] | None:
        """Remove and return the next event (time, kind, number); None if there is none up to and including `until`."""
        while self._heap and self._heap[0][0] <= until:
            time, event = heapq.heappop(self._heap)
            if self._due.get(event) == time:
                del self._due[event]
                self.now = time
                return time, event // _KIND, event % _KIND
        return None

    def soon(self, most: int) -> list[tuple[int, int]]:
        """Return up to `most` early events (kind, number), in no order: the top of the heap."""
        return [divmod(event, _KIND) for time, event in self._heap[:most] if self._due.get(event) == time]

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as arrays."""
        events = sorted(self._due)
        return {
            "now": np.array(self.now),
            "events": np.array(events, dtype=np.int64),
            "times": np.array([self._due[event] for event in events]),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore what `state` returned."""
        self.now = float(state["now"])
        self._due = dict(zip(state["events"].tolist(), state["times"].tolist(), strict=True))
        self._rebuild()

    def _rebuild(self) -> None:
        """Drop invalid entries of the heap."""
        self._heap = [(time, event) for event, time in self._due.items()]
        heapq.heapify(self._heap)
