"""Look up the outcomes of tasks, and the answers to reports on tasks that have ended."""

from __future__ import annotations

from collections.abc import Iterable

from turnout_serve.server.journal.entries import Outcome
from turnout_serve.server.store.store import Store
from turnout_serve.server.verdicts import Refused, Verdict

_MAX_RECENT = 100_000


class Outcomes:
    """The outcomes of all tasks: recent ones in memory, all others in the journal's database.

    Args:
        store: the database.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent: dict[int, Outcome] = {}

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add outcomes; the oldest ones make room, for they are in the database by then."""
        for outcome in outcomes:
            self._recent[outcome.task] = outcome
            if len(self._recent) > _MAX_RECENT:
                del self._recent[next(iter(self._recent))]

    def get(self, client: int, task: int) -> Outcome:
        """Return the outcome of a client's task.

        Raises:
            Refused: if the client never had such a task.
        """
        outcome = self._recent.get(task) or self._store.outcome(task)
        if outcome is None or outcome.client != client:
            raise Refused(404, f"client {client} has no task {task}")
        return outcome


def state_after(outcome: Outcome) -> Verdict:
    """Return the state of a task that has ended."""
    if outcome.outcome == "taken":
        return Verdict(200, {"state": "taken", "digest": outcome.digest})
    return Verdict(200, {"state": "dropped", "reason": outcome.outcome})


def answer_after(outcome: Outcome, digest: str) -> Verdict:
    """Return the answer to a report on a task that has ended; a repeated report gets the answer of the first one."""
    if outcome.outcome != "taken":
        return Verdict(410, {"reason": outcome.outcome})
    if outcome.digest != digest:
        return Verdict(409, {"reason": "another report on this task was taken"})
    return Verdict(200, {"state": "taken"})
