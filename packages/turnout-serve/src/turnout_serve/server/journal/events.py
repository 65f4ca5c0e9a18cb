"""Events that wait for the journal: their queue, and visits that are written only before an entry of another kind."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from turnout_serve.server.journal.driver import Driver

# Journals of earlier versions have "enrol", and digests are of it.
Kind = Literal[
    "start", "restart", "enrol", "join", "leave", "report", "fail", "timer", "survey", "name", "ban", "unban", "remove",
    "codes",
]  # fmt: skip

_INT64 = range(-(1 << 63), 1 << 63)
_MAX_BYTES = 4096  # of the data of an event


@dataclass(eq=False)
class Event:
    """An event that is not yet in the journal, and the future of whoever waits for it.

    Attributes:
        kind, client, task, digest, data: as of an `Entry`.
        file: the upload of a report.
        done: resolved once the event is in the journal and applied.

    Raises:
        ValueError: if no database can store the values. The check is here, in the thread of the request, so that the
            error fails this request and never reaches the thread that writes the journal.
    """

    kind: Kind
    client: int | None = None
    task: int | None = None
    digest: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    file: Path | None = None
    done: Future[Any] = field(default_factory=Future)

    def __post_init__(self) -> None:
        if not all(number is None or number in _INT64 for number in (self.client, self.task)):
            raise ValueError(f"client {self.client} or task {self.task} does not fit in 64 bits")
        texts = [value for value in (self.digest, *self.data.values()) if isinstance(value, str)]
        size = len(json.dumps([self.digest, self.data], ensure_ascii=False, allow_nan=False).encode())
        if size > _MAX_BYTES or any("\0" in text for text in texts):
            raise ValueError(f"the data of an event contain NUL, or have more than {_MAX_BYTES:,} bytes")

    def answer(self, result: Any) -> None:
        """Resolve the future, unless its owner has canceled it."""
        if not self.done.done():
            self.done.set_result(result)

    def fail(self, error: Exception) -> None:
        """Fail the future, unless its owner has canceled it."""
        if not self.done.done():
            self.done.set_exception(error)


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

    def take(self, most: int | None = None) -> list[Event]:
        """Remove and return the first events, or all."""
        with self._condition:
            taken = self._events[:most]
            self._events = self._events[len(taken) :]
        return taken

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


class UnwrittenVisits:
    """Defer joins and leaves that have no effect, and write them before the next entry of another kind.

    Of a client that joined and left in between, nothing is written, so visits without a report do not make the journal grow.
    Visits that are not yet written when a server is killed are lost: these clients count as absent until they ask again.

    Args:
        driver: the run.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._events: dict[int, Event] = {}

    def defer(self, event: Event) -> bool:
        """Defer a join or leave without effect, and answer it; return False for any other event."""
        client, joins = event.client, event.kind == "join"
        if event.kind not in ("join", "leave") or client is None or not self._ignores(client, joins):
            return False
        self._events[client] = event
        event.answer(None)
        return True

    def _ignores(self, client: int, joins: bool) -> bool:
        """Return whether a join or leave has no effect now but on the roster."""
        run = self._driver.run
        if self._driver.surveys.open:
            return False
        if run is None or run.over is not None:
            return True
        if joins and not run.scheduler.may_begin():  # too few are there to be asked, and perhaps with this one, too
            return self._num_present(client) < run.min_clients
        return run.scheduler.pace.ignores(client, joins)

    def _num_present(self, joined: int) -> int:
        """Return the number of clients that are present with the deferred visits, and with one more that has joined."""
        present = {*self._driver.present(), joined}
        for client, event in self._events.items():
            (present.add if event.kind == "join" else present.discard)(client)
        return len(present | {joined})

    def due(self) -> list[Event]:
        """Remove the deferred events and return those that change the presence of a client, in order."""
        is_present = self._driver.roster.is_present
        changes = [event for client, event in self._events.items() if (event.kind == "join") != is_present(client)]
        self._events = {}
        return changes
