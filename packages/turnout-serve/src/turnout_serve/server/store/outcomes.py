"""Outcomes of tasks: in memory at first, and in the database with the next group of entries."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import sqlalchemy as sa

from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.journal.entries import Outcome
from turnout_serve.server.store.database import TASKS, rows, upsert_of
from turnout_serve.server.verdicts import Refused

_MAX_RECENT = 100_000


class Outcomes:
    """The outcomes of all tasks: recent ones in memory, all others in the database.

    Outcomes follow from entries that were applied before. Written with the next group of entries, they cost no transaction
    of their own; a server that dies in between derives them from the journal again.

    Args:
        engine: engine of the database.

    Attributes:
        unwritten: outcomes that are in memory alone.
        last_taken: the last task of the training of each client whose report was taken.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._recent: dict[int, Outcome] = {}
        self.unwritten: list[Outcome] = []
        self.last_taken = self.taken()

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Add outcomes; the oldest ones in memory make room."""
        for outcome in outcomes:
            self.unwritten.append(outcome)
            self._recent[outcome.task] = outcome
            if outcome.outcome == "taken" and outcome.task < FIRST_TASK:
                self.last_taken[outcome.client] = outcome.task
            if len(self._recent) > _MAX_RECENT:
                del self._recent[next(iter(self._recent))]

    def get(self, client: int, task: int) -> Outcome:
        """Return the outcome of a client's task.

        Raises:
            Refused: if the client never had such a task.
        """
        outcome = self._recent.get(task) or self._read(task)
        if outcome is None or outcome.client != client:
            raise Refused(404, f"client {client} has no task {task}")
        return outcome

    def _read(self, task: int) -> Outcome | None:
        """Read the outcome of a task; None where the database has none."""
        found = rows(self._engine, sa.select(TASKS).where(TASKS.c.task == task))
        return Outcome(*found[0]) if found else None

    def taken(self) -> dict[int, int]:
        """Return the number of the last task of the training of each client whose report was taken."""
        query = sa.select(TASKS.c.client, sa.func.max(TASKS.c.task).label("last")).where(
            TASKS.c.outcome == "taken", TASKS.c.task < FIRST_TASK
        )
        return {row.client: row.last for row in rows(self._engine, query.group_by(TASKS.c.client))}

    def write(self, connection: sa.Connection) -> None:
        """Write the outcomes that are in memory alone, in a transaction; call `written` once it is committed."""
        if self.unwritten:
            last = {outcome.task: vars(outcome) for outcome in self.unwritten}
            connection.execute(_upsert(upsert_of(self._engine)), list(last.values()))

    def written(self) -> None:
        """Note that the transaction of `write` was committed."""
        self.unwritten = []


@cache
def _upsert(insert: Any) -> Any:
    """Return the statement that adds or replaces outcomes; to build it takes as long as a commit."""
    statement = insert(TASKS)
    changed = {name: statement.excluded[name] for name in ("client", "outcome", "digest")}
    return statement.on_conflict_do_update(index_elements=["task"], set_=changed)
