"""The database of a run: its tables, its engine, and transactions whose failures can be waited for."""

from __future__ import annotations

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
    sa.Column("token", sa.Text, nullable=False, unique=True),  # a hash: who reads the database can be nobody
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
TASKS = sa.Table(
    "tasks",
    METADATA,
    sa.Column("task", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("client", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("digest", sa.Text),
)


class StoreUnavailable(CheckpointError):
    """The journal cannot be written now (a database that is locked or gone, a full disk); later it may be."""


class StoreLost(CheckpointError):
    """The journal is no longer this server's: its folder was removed, or another server has taken it over."""


GONE = (exc.OperationalError, exc.InterfaceError)  # locked, full, restarted, or a connection that was closed


class Transaction:
    """A transaction whose failures are `StoreUnavailable`."""

    def __init__(self, engine: sa.Engine) -> None:
        self._context = engine.begin()

    def __enter__(self) -> sa.Connection:
        try:
            return self._context.__enter__()
        except exc.DBAPIError as error:
            raise StoreUnavailable(f"the database cannot be used now: {first_line(error)}") from error

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._context.__exit__(kind, error, trace)
        except GONE as gone:
            raise StoreUnavailable(f"the database cannot be used now: {first_line(gone)}") from gone
        if isinstance(error, GONE):
            raise StoreUnavailable(f"the database cannot be used now: {first_line(error)}") from error


def engine_of(url: str) -> sa.Engine:
    """Make the engine of a database."""
    try:
        address = sa.make_url(url)
    except exc.ArgumentError:
        raise ConfigurationError(f"database: got {url!r}, needed postgresql://USER:PASSWORD@HOST/NAME") from None
    if address.get_backend_name() == "postgresql":
        try:
            return sa.create_engine(address.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
        except ModuleNotFoundError:
            raise ConfigurationError("PostgreSQL needs psycopg: pip install 'turnout[postgresql]'") from None
    if address.get_backend_name() != "sqlite":
        raise ConfigurationError(f"database: got {address.drivername}, needed postgresql://..., or none for SQLite")
    engine = sa.create_engine(address, connect_args={"timeout": 5.0, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def durable(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    return engine


def upsert_of(engine: sa.Engine) -> Any:
    """Return the INSERT of a database that may name conflicts."""
    return postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert


def first_line(error: Exception) -> str:
    """Return what a database says of an error, without the statement."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]
