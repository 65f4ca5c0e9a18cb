"""The tables of a run's database, its transactions, and the claim of the one server that may write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql, sqlite

from turnout.core.checks import CheckpointError, ConfigurationError

METADATA = sa.MetaData()
FACTS = sa.Table("facts", METADATA, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text))
CLIENTS = sa.Table(
    "clients",
    METADATA,
    sa.Column("client", sa.BigInteger, primary_key=True, autoincrement=False),
    # Of tokens there are hashes, so that a copy of the database lets nobody act as a client.
    sa.Column("token", sa.Text, nullable=False, unique=True),
    sa.Column("name", sa.Text),
)
CODES = sa.Table(
    "codes", METADATA, sa.Column("code", sa.Text, primary_key=True), sa.Column("client", sa.BigInteger, nullable=True)
)
JOURNAL = sa.Table(
    "journal",
    METADATA,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("wall", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("client", sa.BigInteger),
    sa.Column("task", sa.BigInteger, index=True),
    sa.Column("digest", sa.Text),
    sa.Column("data", sa.Text),
)
LINKS = sa.Table(
    "links",
    METADATA,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("link", sa.Text, nullable=False),
)
"""The link of each entry of the journal; see `turnout_serve.server.journal.replay`."""
TASKS = sa.Table(
    "tasks",
    METADATA,
    sa.Column("task", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("client", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("digest", sa.Text),
)


class StoreUnavailable(CheckpointError):
    """The journal cannot be written now: the database is locked or unreachable, or a disk is full."""


class StoreLost(CheckpointError):
    """The server has lost its journal: the folder was removed, or another server has taken it over."""


# Locked, full, restarted, a connection that was closed, or a database that has become the read-only copy of another one.
GONE = (exc.OperationalError, exc.InterfaceError, exc.InternalError)

_CLAIM = "claim"  # the fact that counts how often the journal was claimed
_SECONDS = 1.0  # between two looks at it
_TAKEN_OVER = "another server has taken over this journal: stop one of the two"
_LOCK = sa.text("SELECT pg_try_advisory_lock(7283)")


@contextmanager
def transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Begin a transaction, and commit it at the end.

    Raises:
        StoreUnavailable: for failures that may be temporary.
        CheckpointError: if the database is damaged.
    """
    try:
        with engine.begin() as connection:
            yield connection
    except GONE as error:
        engine.dispose()  # new connections may lead to a database that can be written
        raise StoreUnavailable(f"the database cannot be used now: {first_line(error)}") from error
    except exc.DatabaseError as error:
        if type(error) is not exc.DatabaseError:  # that of damaged pages; errors of statements have subclasses of it
            raise
        raise CheckpointError(f"the database is damaged ({first_line(error)}): restore it from a copy") from error


def rows(engine: sa.Engine, query: sa.Executable) -> Sequence[Any]:
    """Return the rows of a query, in a transaction of its own."""
    with transaction(engine) as connection:
        return connection.execute(query).all()


def engine_of(url: str) -> sa.Engine:
    """Create the engine of a database.

    Raises:
        ConfigurationError: if the URL is another one, or the package of PostgreSQL is missing.
    """
    try:
        address = sa.make_url(url)
    except exc.ArgumentError:
        raise ConfigurationError(f"database: got {url!r}, needed postgresql://USER:PASSWORD@HOST/NAME") from None
    if address.get_backend_name() == "postgresql":
        try:
            return sa.create_engine(address.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
        except ModuleNotFoundError:
            raise ConfigurationError("PostgreSQL needs psycopg: pip install 'turnout-serve[postgresql]'") from None
    if address.get_backend_name() != "sqlite":
        raise ConfigurationError(f"database: got {address.drivername}, needed postgresql://..., or none for SQLite")
    engine = sa.create_engine(address, connect_args={"timeout": 5.0, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    return engine


def upsert_of(engine: sa.Engine) -> Any:
    """Return the INSERT construct of a database that supports ON CONFLICT."""
    return postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert


def first_line(error: Exception) -> str:
    """Return the first line of the message of a database error, without the statement."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]


class Claim:
    """Take over a journal, so that commits of a server that claimed it earlier are refused.

    An advisory lock of PostgreSQL, or the lock of the folder, refuses a second server at its start. A lock can be lost while
    a server runs (the database restarts, a shared disk has no locks). So claims are also numbered, as fencing tokens, and
    each commit verifies the number in its own transaction. A server that commits nothing looks at it every second, or it
    would answer clients as if it still had the journal.

    Args:
        engine: engine of the database.

    Raises:
        CheckpointError: if another server holds the lock.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._connection: sa.Connection | None = None
        self._verified = time.monotonic()
        if not self.hold():
            raise CheckpointError("another server is at work on this database: stop it first, or give another one")
        with transaction(engine) as connection:
            first = upsert_of(engine)(FACTS).values(name=_CLAIM, value="0").on_conflict_do_nothing()
            connection.execute(first)
            number = sa.cast(sa.cast(FACTS.c.value, sa.BigInteger) + 1, sa.Text)
            connection.execute(FACTS.update().where(FACTS.c.name == _CLAIM).values(value=number))
            self._number = connection.execute(sa.select(FACTS.c.value).where(FACTS.c.name == _CLAIM)).scalar_one()

    def verify(self, connection: sa.Connection) -> None:
        """Raise in a transaction if another server has claimed the journal since.

        The update locks the row, so that no other server can claim the journal before this transaction ends.

        Raises:
            StoreLost: if another server has the journal.
        """
        is_current = (FACTS.c.name == _CLAIM) & (FACTS.c.value == self._number)
        if not connection.execute(FACTS.update().where(is_current).values(value=FACTS.c.value)).rowcount:
            raise StoreLost(_TAKEN_OVER)
        self._verified = time.monotonic()

    def look(self) -> None:
        """Raise if another server has claimed the journal since; do nothing within a second of the last look.

        Raises:
            StoreLost: if another server has the journal.
            StoreUnavailable: if the database cannot be reached now.
        """
        if time.monotonic() - self._verified < _SECONDS:
            return
        claims = rows(self._engine, sa.select(FACTS.c.value).where(FACTS.c.name == _CLAIM))
        if [row.value for row in claims] != [self._number]:
            raise StoreLost(_TAKEN_OVER)
        self._verified = time.monotonic()

    def close(self) -> None:
        """Release the lock."""
        if self._connection is not None:
            self._connection.detach()  # its pool may be gone by now, and would leave it open
            self._connection.close()

    def hold(self) -> bool:
        """Return whether this server holds the advisory lock, and take it again if its connection was lost; SQLite has none.

        The database may not have noticed that, and have the lock taken for hours to come. So a commit goes on without it, and
        `verify` tells whether another server has the journal.

        Raises:
            StoreUnavailable: if the database cannot be reached now.
        """
        if self._engine.dialect.name != "postgresql":
            return True
        if self._connection is not None:
            try:
                self._connection.execute(sa.text("SELECT 1"))
                return True
            except exc.DBAPIError:
                self._connection.invalidate()  # closed as it is, it would send a rollback, which raises
                self._connection = None
        try:
            with ExitStack() as opened:
                connection = opened.enter_context(self._engine.connect())
                taken = bool(connection.execution_options(isolation_level="AUTOCOMMIT").execute(_LOCK).scalar())
                if taken:
                    self._connection = connection
                    opened.pop_all()
        except exc.DBAPIError as error:
            raise StoreUnavailable(f"the database cannot be used now: {first_line(error)}") from error
        return taken
