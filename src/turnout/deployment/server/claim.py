"""Who may write a journal: one server at a time, also where a lock was lost while it ran."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import exc

from turnout.core.checks import CheckpointError
from turnout.deployment.server.database import FACTS, StoreLost, StoreUnavailable, Transaction, first_line, upsert_of

_CLAIM = "claim"  # the fact that counts how often the journal was claimed
_LOCK = sa.text("SELECT pg_try_advisory_lock(7283)")


class Claim:
    """Take a journal over: from now on, each commit of a server that claimed it earlier is refused.

    An advisory lock of PostgreSQL, or the lock on the folder, refuses a second server at its start. Locks can be lost
    while a server runs (the database restarts, a shared disk has none), so claims are numbered as well, and each commit
    verifies the number in its own transaction.

    Args:
        engine: of the database.

    Raises:
        CheckpointError: where another server holds the lock.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._connection: sa.Connection | None = None
        if not self._lock():
            raise CheckpointError("another server is at work on this database: stop it first, or give another one")
        with Transaction(engine) as connection:
            first = upsert_of(engine)(FACTS).values(name=_CLAIM, value="0").on_conflict_do_nothing()
            connection.execute(first)
            number = sa.cast(sa.cast(FACTS.c.value, sa.BigInteger) + 1, sa.Text)
            connection.execute(FACTS.update().where(FACTS.c.name == _CLAIM).values(value=number))
            self._number = connection.execute(sa.select(FACTS.c.value).where(FACTS.c.name == _CLAIM)).scalar_one()

    def hold(self) -> None:
        """Verify the advisory lock, and take it again where its connection was lost.

        Raises:
            StoreUnavailable: where the database cannot be reached now.
            StoreLost: where another server holds the lock.
        """
        if not self._lock():
            raise StoreLost("another server has locked this database: stop one of the two")

    def verify(self, connection: sa.Connection) -> None:
        """Refuse a transaction where another server has claimed the journal since.

        The update locks the row, so that no other server can claim the journal before this transaction ends.

        Raises:
            StoreLost: where another server has the journal.
        """
        mine = (FACTS.c.name == _CLAIM) & (FACTS.c.value == self._number)
        if not connection.execute(FACTS.update().where(mine).values(value=FACTS.c.value)).rowcount:
            raise StoreLost("another server has taken over this journal: stop one of the two")

    def close(self) -> None:
        """Release the lock."""
        if self._connection is not None:
            self._connection.close()

    def _lock(self) -> bool:
        """Return whether this server holds the advisory lock; SQLite has none."""
        if self._engine.dialect.name != "postgresql":
            return True
        try:
            if self._connection is not None:
                self._connection.execute(sa.text("SELECT 1"))
                return True
        except exc.DBAPIError:
            self.close()
            self._connection = None
        try:
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            taken = bool(connection.execute(_LOCK).scalar())
        except exc.DBAPIError as error:
            raise StoreUnavailable(f"the database cannot be used now: {first_line(error)}") from error
        if taken:
            self._connection = connection
        else:
            connection.close()
        return taken
