"""Store of a server: the journal of all that happened, clients and codes; models and reports are `Files` beside it.

The journal is a database's table (SQLite in the run's folder, or PostgreSQL by URL). What happened is applied only after it
is in the journal, and answered only after it is applied, so whoever was answered can rely on it. Everything that waits is
written together: the files are brought to the disk side by side, and their entries with one transaction.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.deployment.server.database import (
    CLIENTS,
    CODES,
    FACTS,
    JOURNAL,
    METADATA,
    TASKS,
    Claim,
    StoreLost,
    StoreUnavailable,
    Transaction,
    engine_of,
    first_line,
    upsert_of,
)
from turnout.deployment.server.files import Files
from turnout.protocol.survey import FIRST_TASK
from turnout.record.contents import parse

SQLITE = "journal.sqlite"
_SHAPE = "shape"  # the fact that has the shape of clients' examples, as the first of them told it
_BEGINS = "begins"  # the fact that says from which entry on the journal is whole
_OBJECTS = "objects"  # the fact that gives the URL of an object store; empty without one
_LOST = "lost "  # begins the fact that says why the report of a task was lost


@dataclass(frozen=True)
class Entry:
    """One thing that happened.

    Attributes:
        number: its place in the journal, from 1, without gaps.
        time: seconds that the server has run until then, those before a restart included.
        wall: the clock on the wall, for people.
        kind: ``"start"``, ``"restart"``, ``"enrol"``, ``"join"``, ``"leave"``, ``"report"``, ``"fail"``, ``"timer"`` or
            ``"survey"``; of an administrator ``"name"``, ``"ban"``, ``"unban"``, ``"remove"`` or ``"codes"``.
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
    """Outcome of a task: ``"taken"``, or the reason why not; and the digest of the report that was taken."""

    task: int
    client: int
    outcome: str
    digest: str | None = None


class Store:
    """The journal of one run, and its files.

    Args:
        folder: the run's folder.
        url: of a PostgreSQL database, ``postgresql://...``; None is a SQLite file in the folder.
        objects: URL of an object store that holds models and reports; None is where the run has them.
        read_only: whether models and reports are only read.

    Attributes:
        files: models and reports.
        wait: called with the error when a write in the middle of an entry has failed; it returns when the write is to be
            tried again. By default it raises `StoreUnavailable`.

    Raises:
        ConfigurationError: for a database or an object store that cannot be used.
    """

    def __init__(
        self, folder: Path, url: str | None = None, objects: str | None = None, read_only: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.wait = folder, _refuse
        self.engine = engine_of(f"sqlite:///{folder / SQLITE}" if url is None else url)
        self._claim: Claim | None = None
        try:
            METADATA.create_all(self.engine)
        except exc.SQLAlchemyError as error:
            raise ConfigurationError(f"the database cannot be used: {first_line(error)}") from None
        self._paths = [folder] if url is not None else [folder, folder / SQLITE]
        self._inodes = [_inode(path) for path in self._paths]
        self.files = self._opened(objects, read_only)

    def _opened(self, url: str | None, read_only: bool) -> Files:
        """Return where the models and reports of this run are; the place never changes once the journal has begun.

        Raises:
            ConfigurationError: for another object store than the run has.
        """
        begun = next(self.entries(), None) is not None
        noted = self.fact(_OBJECTS, None if read_only else "" if begun else url or "")
        if url is not None and url != noted:
            raise ConfigurationError(
                f"store: got {url}, but this run has its models and reports in {noted or self.folder}: leave --store out"
            )
        if not noted:
            return Files(self.folder, self.until_done, read_only)
        from turnout.deployment.server.objects import Objects

        return Objects(self.folder, self.until_done, noted, read_only)

    def claim(self) -> None:
        """Take the journal over, as `Claim` says.

        Raises:
            CheckpointError: where another server has it.
        """
        try:
            self._claim = Claim(self.engine)
        except CheckpointError:
            self.close()
            raise

    def check(self) -> None:
        """Verify that the folder is still the one that was opened.

        Raises:
            StoreLost: where it, or the journal in it, was removed or replaced.
        """
        for path, inode in zip(self._paths, self._inodes, strict=True):
            if _inode(path) != inode:
                raise StoreLost(
                    f"{path} was removed or replaced while the server ran: restore {self.folder} from a copy"
                )

    def close(self) -> None:
        """Let go of files and connections."""
        if self._claim is not None:
            self._claim.close()
        self.files.close()
        self.engine.dispose()

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return what is noted under a name; note `value` there if nothing is."""
        with self._transaction() as connection:
            noted = connection.execute(sa.select(FACTS.c.value).where(FACTS.c.name == name)).scalar()
            if noted is None and value is not None:
                connection.execute(FACTS.insert().values(name=name, value=value))
                noted = value
            return noted

    @property
    def run(self) -> str:
        """The name of this run, drawn once, by which clients know that a server is still the same."""
        name = self.fact("run", secrets.token_hex(8))
        assert name is not None
        return name

    @property
    def shape(self) -> dict[str, Any] | None:
        """The shape of clients' examples, where the first client told it; None where it was declared, or is not known."""
        noted = self.fact(_SHAPE)
        return None if noted is None else read_json(noted, "the shape of examples in the journal")

    def note_shape(self, shape: dict[str, Any]) -> dict[str, Any]:
        """Note the shape of clients' examples before any entry; return that which was noted first."""
        return read_json(self.fact(_SHAPE, json.dumps(shape)) or "{}", "the shape of examples in the journal")

    @property
    def begins(self) -> int:
        """The entry from which on the journal is whole; 0 where nothing was deleted."""
        return int(self.fact(_BEGINS) or 0)

    def clients(self) -> dict[str, int]:
        """Return all clients by the hash of their token."""
        with self._transaction() as connection:
            return {row.token: row.client for row in connection.execute(sa.select(CLIENTS))}

    def add_codes(self, hashes: Iterable[str]) -> None:
        """Add one-time codes for enrolment, as hashes."""
        with self._transaction() as connection:
            connection.execute(CODES.insert(), [{"code": code} for code in hashes])

    def codes(self) -> dict[str, int | None]:
        """Return all one-time codes (hashes), with the client that used each."""
        with self._transaction() as connection:
            return dict(connection.execute(sa.select(CODES.c.code, CODES.c.client)).all())

    def commit(
        self, entries: Sequence[Entry], arrived: Sequence[tuple[Path, str]] = (), outcomes: Sequence[Outcome] = ()
    ) -> None:
        """Bring a group of entries to the disk, with the files that they speak of.

        Args:
            entries: what happened, numbers ascending.
            arrived: files of reports, and their digests.
            outcomes: what became of tasks by earlier entries.

        Raises:
            StoreUnavailable: where this is impossible now; nothing of it has happened then, and it may be tried again.
            StoreLost: where the folder was removed, or another server has claimed the journal.
        """
        self.check()
        if self._claim is not None:
            self._claim.hold()
        try:
            # Files before entries: an entry that names a report must never be on the disk without it. A file that no entry
            # names only takes space.
            self.files.bring(arrived)
            with self._transaction() as connection:
                if self._claim is not None:
                    self._claim.verify(connection)
                if entries:
                    connection.execute(JOURNAL.insert(), [_row(entry) for entry in entries])
                for entry in entries:
                    _tabulate(connection, entry)
                if outcomes:
                    rows = {outcome.task: vars(outcome) for outcome in outcomes}
                    connection.execute(_upsert_outcomes(upsert_of(self.engine)), list(rows.values()))
        except OSError as error:
            raise StoreUnavailable(f"{self.folder} cannot be written: {error}") from error

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Return the journal from the entry behind number `after` on, without holding all of it."""
        while True:
            query = sa.select(JOURNAL).where(JOURNAL.c.number > after).order_by(JOURNAL.c.number).limit(1000)
            with self._transaction() as connection:
                rows = connection.execute(query).all()
            yield from (_entry(row) for row in rows)
            if len(rows) < 1000:
                return
            after = rows[-1].number

    def outcome(self, task: int) -> Outcome | None:
        """Return what became of a task, if it has ended."""
        with self._transaction() as connection:
            row = connection.execute(sa.select(TASKS).where(TASKS.c.task == task)).one_or_none()
        return None if row is None else Outcome(row.task, row.client, row.outcome, row.digest)

    def taken(self) -> dict[int, int]:
        """Return the last task of each client whose report was taken, by client."""
        query = sa.select(TASKS.c.client, sa.func.max(TASKS.c.task)).where(TASKS.c.outcome == "taken")
        with self._transaction() as connection:
            return dict(connection.execute(query.group_by(TASKS.c.client)).all())

    def keep_reports(self, after: int, digests: Iterable[str]) -> None:
        """Delete all reports but these, and those that the journal speaks of behind the entry number `after`.

        Raises:
            StoreUnavailable: where the journal cannot be read now.
        """
        needed = {*digests, *(entry.digest for entry in self.entries(after) if entry.kind == "report")}
        self.files.keep_reports(needed)

    def compact(self, before: int) -> None:
        """Delete the journal before an entry, and what became of all tasks but the last ones of each client.

        Starts remain, for they hold what noise is made of.

        Raises:
            StoreUnavailable: where this is impossible now; nothing was deleted then.
        """
        last = sa.select(sa.func.max(TASKS.c.task)).group_by(TASKS.c.client, TASKS.c.task >= FIRST_TASK)
        with self._transaction() as connection:
            if self._claim is not None:
                self._claim.verify(connection)
            begins = upsert_of(self.engine)(FACTS).values(name=_BEGINS, value=str(before))
            connection.execute(
                begins.on_conflict_do_update(index_elements=["name"], set_={"value": begins.excluded.value})
            )
            old = (JOURNAL.c.number < before) & JOURNAL.c.kind.not_in(("start", "restart"))
            connection.execute(JOURNAL.delete().where(old))
            connection.execute(TASKS.delete().where(TASKS.c.task.not_in(last)))

    def lost(self) -> set[int]:
        """Return the tasks whose report was missing, damaged or of no use when it was needed."""
        with self._transaction() as connection:
            names = connection.execute(sa.select(FACTS.c.name).where(FACTS.c.name.startswith(_LOST))).scalars()
            return {int(name.removeprefix(_LOST)) for name in names}

    def note_lost(self, task: int, reason: str) -> None:
        """Note that the report of a task was not used, so that whoever applies the journal again leaves it out, too.

        Raises:
            CheckpointError: where no report is left, or nothing is written: only a copy helps then.
        """
        if self.files.read_only or not self.files.has_reports():
            raise CheckpointError(reason)
        self.note_unused([task], reason)

    def note_unused(self, tasks: Iterable[int], reason: str) -> None:
        """Note that reports were not used, which `lost` then returns; nothing where nothing is written."""
        for task in tasks if not self.files.read_only else ():
            self.until_done(lambda name=f"{_LOST}{task}": self.fact(name, reason[:1000]))

    def until_done(self, write: Callable[[], object]) -> None:
        """Write something without which an entry cannot be applied; try again for as long as `wait` returns."""
        while True:
            try:
                write()
                return
            except (OSError, CheckpointError) as error:
                self.check()
                self.wait(error)

    def _transaction(self) -> Transaction:
        return Transaction(self.engine)


def forgotten(client: int) -> str:
    """Return what takes the place of a removed client's token: the hash of no token."""
    return f"removed {client}"


@cache
def _upsert_outcomes(insert: Any) -> Any:
    """Return the statement that adds outcomes or replaces those of the same tasks; building it takes as long as a commit."""
    statement = insert(TASKS)
    changed = {name: statement.excluded[name] for name in ("client", "outcome", "digest")}
    return statement.on_conflict_do_update(index_elements=["task"], set_=changed)


def _tabulate(connection: sa.Connection, entry: Entry) -> None:
    """Change the tables of clients and of one-time codes as an entry says."""
    data = entry.data
    match entry.kind:
        case "enrol":
            row = {"client": entry.client, "token": entry.digest, "name": data.get("name")}
            connection.execute(CLIENTS.insert().values(row))
            if (code := data.get("code")) is not None:
                connection.execute(CODES.update().where(CODES.c.code == code).values(client=entry.client))
        case "name":
            connection.execute(CLIENTS.update().where(CLIENTS.c.client == entry.client).values(name=data["text"]))
        case "remove":
            assert entry.client is not None
            nobody = {"token": forgotten(entry.client), "name": None}
            connection.execute(CLIENTS.update().where(CLIENTS.c.client == entry.client).values(nobody))
        case "codes" if "add" in data:
            connection.execute(CODES.insert(), [{"code": code} for code in data["add"]])
        case "codes":
            free = CODES.c.client.is_(None)
            only = sa.true() if data["withdraw"] is None else CODES.c.code == data["withdraw"]
            connection.execute(CODES.delete().where(free, only))


def _refuse(error: Exception) -> None:
    if isinstance(error, StoreUnavailable):
        raise error
    raise StoreUnavailable(f"the folder of the run cannot be written: {error}. Free some space") from error


def _inode(path: Path) -> tuple[int, int] | None:
    """Return what identifies a file or folder on its disk; None where there is none."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _row(entry: Entry) -> dict[str, Any]:
    return {**vars(entry), "data": json.dumps(entry.data) if entry.data else None}


def _entry(row: Any) -> Entry:
    return Entry(**{**row._asdict(), "data": read_json(row.data or "{}", f"entry {row.number} of the journal")})


def read_json(text: str, name: str) -> dict[str, Any]:
    """Read what a database holds as JSON.

    Raises:
        CheckpointError: where it is damaged, with the name of what it is.
    """
    try:
        return parse(text)
    except ValueError:
        raise CheckpointError(f"{name} is damaged: restore the journal from a copy") from None
