"""Bound what clients cost that join and leave without sending reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Outcome
from turnout_serve.server.journal.event import Event

_MAX_LOST = 16  # tasks in a row that a client may lose before it is suspended
_MAX_SECONDS = 3600.0  # of a suspension


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
