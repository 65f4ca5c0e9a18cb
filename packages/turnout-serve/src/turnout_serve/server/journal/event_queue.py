"""The queue of the events that wait for the journal."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from turnout_serve.server.journal.event import Event


class EventQueue:
    """Events in the order of their arrival. All methods may be called by any thread."""

    def __init__(self) -> None:
        self._condition, self._events = threading.Condition(), list[Event]()
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> Future[Any]:
        """Add an event; the future is resolved once it is applied."""
        with self._condition:
            self._events.append(event)
            self._condition.notify()
        return event.done

    def take(self) -> list[Event]:
        """Remove and return all events."""
        with self._condition:
            events, self._events = self._events, []
        return events

    def put_back(self, events: Sequence[Event]) -> None:
        """Add events that were taken before all that have arrived since."""
        with self._condition:
            self._events = [*events, *self._events]

    def wait(self, seconds: float) -> None:
        """Wait until there is an event or the queue is closed, for so many seconds at most."""
        with self._condition:
            if not self._events and not self._closed:
                self._condition.wait(seconds)

    def close(self) -> None:
        """End all waits, now and later; events may still be added."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
