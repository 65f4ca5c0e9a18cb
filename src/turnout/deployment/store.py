"""What a server keeps: a journal of all that happened, the clients, and models and reports as files by digest.

The journal is a database's table (SQLite in the run's folder, or PostgreSQL by URL). What happened is applied only after it
is in the journal, and answered only after it is applied, so whoever was answered can rely on it. Everything that waits is
written together: the files are brought to the disk side by side, and their entries with one transaction.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql, sqlite

from turnout.core.checks import CheckpointError, ConfigurationError

SQLITE = "journal.sqlite"
_WRITERS = 16  # files that are brought to the disk at a time: the disk does them together

_metadata = sa.MetaData()
_facts = sa.Table("facts", _metadata, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text))
_clients = sa.Table(
    "clients",
    _metadata,
    sa.Column("client", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("token", sa.Text, nullable=False, unique=True),  # a hash: who reads the database can be nobody
    sa.Column("name", sa.Text),
)
_codes = sa.Table(
    "codes", _metadata, sa.Column("code", sa.Text, primary_key=True), sa.Column("client", sa.BigInteger, nullable=True)
)
_journal = sa.Table(
    "journal",
    _metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("wall", sa.Double, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("client", sa.BigInteger),
    sa.Column("task", sa.BigInteger, index=True),
    sa.Column("digest", sa.Text),
    sa.Column("data", sa.Text),
)
_tasks = sa.Table(
    "tasks",
    _metadata,
    sa.Column("task", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("client", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("digest", sa.Text),
)


@dataclass(frozen=True)
class Entry:
    """One thing that happened.

    Attributes:
        number: its place in the journal, from 1, without gaps.
        time: seconds that the server has run until then, those before a restart included.
        wall: the clock on the wall, for people.
        kind: ``"start"``, ``"restart"``, ``"enrol"``, ``"join"``, ``"leave"``, ``"report"``, ``"fail"`` or ``"timer"``.
        client: whom it is about.
        task: which task.
        digest: of a report, or of a client's token.
        data: whatever else, as plain values.
    """

    number: int
    time: float
    wall: float
    kind: str
    client: int | None = None
    task: int | None = None
    digest: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of a task: ``"taken"``, or the reason why not; and the digest of the report that was taken."""

    task: int
    client: int
    outcome: str
    digest: str | None = None


class StoreUnavailable(CheckpointError):
    """The journal cannot be written now (a database that is locked or gone, a full disk); later it may be."""


class Store:
    """The journal and files of one run.

    Args:
        folder: the run's folder.
        url: of a PostgreSQL database, ``postgresql://...``; None is a SQLite file in the folder.

    Raises:
        ConfigurationError: for a database that cannot be used.
    """

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder = folder
        self.models, self.reports, self.incoming = folder / "models", folder / "reports", folder / "incoming"
        for path in (self.models, self.reports, self.incoming):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.engine = _engine(f"sqlite:///{folder / SQLITE}" if url is None else url)
        self._upsert = postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert
        self._claimed: sa.Connection | None = None
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="sync")
        try:
            _metadata.create_all(self.engine)
        except exc.SQLAlchemyError as error:
            raise ConfigurationError(f"the database cannot be used: {_first_line(error)}") from None

    def claim(self) -> None:
        """Have the database to oneself until `close`; of a SQLite file, the lock on its folder sees to that.

        Raises:
            CheckpointError: where another server has it.
        """
        if self.engine.dialect.name != "postgresql":
            return
        self._claimed = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if not self._claimed.execute(sa.text("SELECT pg_try_advisory_lock(7283)")).scalar():
            self.close()
            raise CheckpointError("another server is at work on this database: stop it first, or give another one")

    def close(self) -> None:
        """Let go of files and connections."""
        if self._claimed is not None:
            self._claimed.close()
        self._pool.shutdown()
        self.engine.dispose()

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return what is noted under a name; note `value` there if nothing is."""
        with self._transaction() as connection:
            found = connection.execute(sa.select(_facts.c.value).where(_facts.c.name == name)).scalar()
            if found is None and value is not None:
                connection.execute(_facts.insert().values(name=name, value=value))
                found = value
            return found

    @property
    def run(self) -> str:
        """The name of this run, drawn once, by which clients know that a server is still the same."""
        found = self.fact("run", secrets.token_hex(8))
        assert found is not None
        return found

    @property
    def discarded(self) -> str:
        """A word on reports that may be gone, where a server has deleted some."""
        gone = self.fact("discards") is not None
        return ". The server was told to discard reports, and goes on from its checkpoints alone" if gone else ""

    def clients(self) -> dict[str, int]:
        """Return all clients by the hash of their token."""
        with self._transaction() as connection:
            return {row.token: row.client for row in connection.execute(sa.select(_clients))}

    def add_codes(self, hashes: Iterable[str]) -> None:
        """Add one-time codes for enrolment, as hashes."""
        with self._transaction() as connection:
            connection.execute(_codes.insert(), [{"code": code} for code in hashes])

    def codes(self) -> dict[str, int | None]:
        """Return all one-time codes (hashes), with the client that used each."""
        with self._transaction() as connection:
            return dict(connection.execute(sa.select(_codes.c.code, _codes.c.client)).all())

    def commit(
        self, entries: Sequence[Entry], arrived: Sequence[tuple[Path, Path]] = (), outcomes: Sequence[Outcome] = ()
    ) -> None:
        """Bring a group of entries to the disk, with the files that they speak of.

        Args:
            entries: what happened, numbers ascending.
            arrived: files that were written, and where they belong.
            outcomes: what became of tasks by earlier entries.

        Raises:
            StoreUnavailable: where this is impossible now; nothing of it has happened then, and it may be tried again.
        """
        try:
            self._bring(arrived)
            with self._transaction() as connection:
                if entries:
                    connection.execute(_journal.insert(), [_row(entry) for entry in entries])
                self._enrol(connection, [entry for entry in entries if entry.kind == "enrol"])
                if outcomes:
                    rows = {each.task: vars(each) for each in outcomes}
                    insert = self._upsert(_tasks)
                    changed = {name: insert.excluded[name] for name in ("client", "outcome", "digest")}
                    newest = insert.on_conflict_do_update(index_elements=["task"], set_=changed)
                    connection.execute(newest, list(rows.values()))
        except OSError as error:
            raise StoreUnavailable(f"{self.folder} cannot be written: {error}") from error

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Return the journal from the entry behind number `after` on, without holding all of it."""
        while True:
            query = sa.select(_journal).where(_journal.c.number > after).order_by(_journal.c.number).limit(1000)
            with self._transaction() as connection:
                rows = connection.execute(query).all()
            yield from (_entry(row) for row in rows)
            if len(rows) < 1000:
                return
            after = rows[-1].number

    def outcome(self, task: int) -> Outcome | None:
        """Return what became of a task, if it has ended."""
        with self._transaction() as connection:
            row = connection.execute(sa.select(_tasks).where(_tasks.c.task == task)).one_or_none()
        return None if row is None else Outcome(row.task, row.client, row.outcome, row.digest)

    def model(self, digest: str) -> Path:
        """Return where the model of this digest is."""
        return self.models / f"{digest}.safetensors"

    def report(self, digest: str) -> Path:
        """Return where the report of this digest is."""
        return self.reports / f"{digest}.safetensors"

    def write_model(self, digest: str, body: bytes) -> Path:
        """Write a model, unless it is there."""
        path = self.model(digest)
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(body)
            sync(part)
            move(part, path)
        return path

    def keep_models(self, digests: set[str]) -> None:
        """Delete all models but these."""
        for path in self.models.iterdir():
            if path.stem not in digests:
                path.unlink(missing_ok=True)

    def keep_reports(self, after: int, digests: Iterable[str]) -> None:
        """Delete all reports but these, and those that the journal speaks of behind the entry number `after`.

        Raises:
            StoreUnavailable: where the journal cannot be read now.
        """
        kept = {*digests, *(entry.digest for entry in self.entries(after) if entry.kind == "report")}
        for path in self.reports.iterdir():
            if path.stem not in kept:
                path.unlink(missing_ok=True)

    def damaged(self, reports: Sequence[tuple[Path, str]]) -> set[Path]:
        """Return which of these files, of reports by digest, hold something else; files that were brought are looked up."""

        def differs(report: tuple[Path, str]) -> bool:
            path, digest = report
            try:
                with (path if path.exists() else self.report(digest)).open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest() != digest
            except FileNotFoundError:
                return True

        found = self._pool.map(differs, reports)
        return {path for (path, _), differs in zip(reports, found, strict=True) if differs}

    def _bring(self, arrived: Sequence[tuple[Path, Path]]) -> None:
        """Bring files to the disk and put them where they belong."""
        waiting = [(part, path) for part, path in arrived if part.exists()]  # some may be there from an earlier attempt
        list(self._pool.map(sync, [part for part, _ in waiting]))
        for part, path in waiting:
            move(part, path)
        for directory in {path.parent for _, path in waiting}:
            sync(directory)

    @staticmethod
    def _enrol(connection: sa.Connection, entries: Sequence[Entry]) -> None:
        """Add the clients that were enrolled, and note which codes they used."""
        for entry in entries:
            row = {"client": entry.client, "token": entry.digest, "name": entry.data.get("name")}
            connection.execute(_clients.insert().values(row))
            if (code := entry.data.get("code")) is not None:
                connection.execute(_codes.update().where(_codes.c.code == code).values(client=entry.client))

    def _transaction(self) -> _Transaction:
        return _Transaction(self.engine)


class _Transaction:
    """A transaction whose failures are `StoreUnavailable`."""

    def __init__(self, engine: sa.Engine) -> None:
        self._context = engine.begin()

    def __enter__(self) -> sa.Connection:
        try:
            return self._context.__enter__()
        except exc.DBAPIError as error:
            raise StoreUnavailable(f"the database cannot be used now: {_first_line(error)}") from error

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._context.__exit__(kind, error, trace)
        except exc.OperationalError as gone:
            raise StoreUnavailable(f"the database cannot be used now: {_first_line(gone)}") from gone
        if isinstance(error, exc.OperationalError):
            raise StoreUnavailable(f"the database cannot be used now: {_first_line(error)}") from error


def move(part: Path, path: Path) -> None:
    """Put a file where it belongs, in one step."""
    os.replace(part, path)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _engine(url: str) -> sa.Engine:
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


def _row(entry: Entry) -> dict[str, Any]:
    return {**vars(entry), "data": json.dumps(entry.data) if entry.data else None}


def _entry(row: Any) -> Entry:
    return Entry(**{**row._asdict(), "data": json.loads(row.data) if row.data else {}})


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
