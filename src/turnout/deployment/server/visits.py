"""Clients that come and go without a report: their visits do not make the journal grow for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnout.deployment.server.driver import Driver
from turnout.deployment.server.happening import Happening
from turnout.deployment.server.store import Outcome
from turnout.protocol.survey import FIRST_TASK

_IN_A_ROW = 16  # tasks that a client may lose before it has to wait
_LONGEST = 3600.0  # seconds


class UnwrittenVisits:
    """Keep visits of which nothing follows, and write them before the next entry of another kind.

    Of a client that came and went in between, nothing is written. What is not yet written when a server is killed is lost, as
    if the client had not asked yet; it asks again.

    Args:
        driver: which knows whether something follows.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._unwritten: dict[int, Happening] = {}

    def take(self, happening: Happening) -> bool:
        """Keep a join or leave, unless something follows of it; return whether it is kept, and answered."""
        client, comes = happening.client, happening.kind == "join"
        if happening.kind not in ("join", "leave") or client is None or not self._driver.ignores(client, comes):
            return False
        self._unwritten[client] = happening
        happening.answer(None)
        return True

    def due(self) -> list[Happening]:
        """Return what has changed since the last entry, in the order in which clients came and went, and forget it."""
        is_there = self._driver.roster.is_there
        changes = [visit for client, visit in self._unwritten.items() if (visit.kind == "join") != is_there(client)]
        self._unwritten = {}
        return changes


class LostTasks:
    """Clients that take tasks and send no report: after 16 in a row they wait, twice as long each time, up to an hour.

    Tasks that the pace ends (late, stale) do not count. A report begins anew, and so does another start of the server.

    Args:
        clock: seconds that the server has run.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lost: dict[int, int] = {}
        self._until: dict[int, float] = {}

    def note(self, outcomes: Iterable[Outcome]) -> list[int]:
        """Take note of what became of tasks; return the clients that have to wait now."""
        waits = []
        for outcome in outcomes:
            if outcome.outcome == "taken":
                self._lost.pop(outcome.client, None)
                self._until.pop(outcome.client, None)
            elif outcome.outcome in ("left", "died") and outcome.task < FIRST_TASK:
                lost = self._lost[outcome.client] = self._lost.get(outcome.client, 0) + 1
                if lost >= _IN_A_ROW:
                    self._until[outcome.client] = self._clock() + min(_LONGEST, 2.0 ** min(lost - _IN_A_ROW, 12))
                    waits.append(outcome.client)
        return waits

    def wait(self, client: int) -> float:
        """Return in how many seconds a client may have a task again."""
        return max(0.0, self._until.get(client, 0.0) - self._clock())
