"""The database of a run: its journal, clients and one-time codes; with the `Files` and `Outcomes` beside it.

The database is a SQLite file in the run's folder, or PostgreSQL by URL. A group of entries is written together: the files of
its reports are synced side by side, and the entries are committed in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.journal.entries import Entry, chained, first_link, tabulate
from turnout_serve.server.store import database as db
from turnout_serve.server.store.database import Claim, StoreLost, StoreUnavailable, rows, transaction, upsert_of
from turnout_serve.server.store.facts import BEGINS, Facts
from turnout_serve.server.store.opened_folder import open_files, opened_folder
from turnout_serve.server.store.outcomes import Outcomes
from turnout_serve.wire.administrator import JOURNAL_FILE


class Store:
    """The database and the files of one run.

    Args:
        folder: the run's folder.
        url: URL of a PostgreSQL database, ``postgresql://...``; None is a SQLite file in the folder.
        objects: URL of an object store for models and reports; None has them in the folder.
        read_only: True where models and reports are only read.

    Attributes:
        facts: facts about the run.
        files: models and reports.
        outcomes: outcomes of tasks; the next `commit` writes those that were added.
        wait: called with the error when a write or a read in the middle of an entry has failed; it returns when that is to
            be tried again. By default it raises `StoreUnavailable`.

    Raises:
        ConfigurationError: if a database or an object store cannot be used.
        CheckpointError: if the folder contains a link to another folder.
    """

    def __init__(
        self, folder: Path, url: str | None = None, objects: str | None = None, read_only: bool = False
    ) -> None:
        self.folder, self.wait = folder, _refuse
        own = opened_folder(folder, read_only=read_only)
        self.engine = db.engine_of(own if url is None else url)
        self._claim: Claim | None = None
        try:
            # Earlier versions have written no links, and a journal that is only read stays as it is.
            tables = [table for table in db.METADATA.sorted_tables if not read_only or table is not db.LINKS]
            db.METADATA.create_all(self.engine, tables)
            self._has_links = sa.inspect(self.engine).has_table(db.LINKS.name)
        except exc.SQLAlchemyError as error:
            raise ConfigurationError(f"the database cannot be used: {db.first_line(error)}") from None
        self.facts, self.outcomes = Facts(self.engine), Outcomes(self.engine)
        self._run = self.facts.run
        self._inodes = {path: _inode(path) for path in (folder, folder / JOURNAL_FILE)[: 2 if url is None else 1]}
        begun = next(self.entries(), None) is not None
        self.files = open_files(folder, objects, self.facts, self.until_done, begun=begun, read_only=read_only)

    def claim(self) -> None:
        """Take the journal over, as `Claim` says.

        Raises:
            CheckpointError: if another server has it.
        """
        self._claim = Claim(self.engine)

    def check(self) -> None:
        """Verify that the folder, and the journal in it, are still those that were opened, and those of this server.

        Raises:
            StoreLost: if one of them was removed or replaced, or another server has claimed the journal.
            StoreUnavailable: if that cannot be found out now.
        """
        for path, inode in self._inodes.items():
            if _inode(path) != inode:
                raise StoreLost(f"{path} was removed or replaced while the server ran: restore it from a copy")
        if self._claim is not None:
            self._claim.look()

    def close(self) -> None:
        """Close files and connections."""
        if self._claim is not None:
            self._claim.close()
        self.files.close()
        self.engine.dispose()

    def clients(self) -> dict[str, int]:
        """Return the clients by the hash of their token."""
        return {row.token: row.client for row in rows(self.engine, sa.select(db.CLIENTS))}

    def add_codes(self, hashes: Iterable[str]) -> None:
        """Add one-time codes for enrollment, as hashes."""
        with transaction(self.engine) as connection:
            connection.execute(db.CODES.insert(), [{"code": code} for code in hashes])

    def codes(self) -> dict[str, int | None]:
        """Return all one-time codes (hashes), with the client that used each."""
        return {row.code: row.client for row in rows(self.engine, sa.select(db.CODES))}

    def commit(self, entries: Sequence[Entry] = (), arrived: Sequence[tuple[Path, str]] = ()) -> None:
        """Write a group of entries to the disk, with the files of their reports, and outcomes of earlier entries.

        Args:
            entries: numbers ascending.
            arrived: files of reports, and their digests.

        Raises:
            StoreUnavailable: if this is impossible now; no entry is written then, and the call may be repeated.
            StoreLost: if the folder was removed, or another server has claimed the journal.
        """
        self.check()
        if self._claim is not None:
            self._claim.hold()
        try:
            # Files before entries: an entry that names a report must never be on the disk without it. A file without an
            # entry only takes space.
            self.files.bring(arrived)
            with transaction(self.engine) as connection:
                if self._claim is not None:
                    self._claim.verify(connection)
                if entries:
                    connection.execute(db.JOURNAL.insert(), [entry.row() for entry in entries])
                    self._link(connection, entries)
                for entry in entries:
                    tabulate(connection, entry)
                self.outcomes.write(connection)
            self.outcomes.written()
        except OSError as error:
            raise StoreUnavailable(f"{self.folder} cannot be written: {error}") from error

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the entries of the journal after a number, a thousand at a time in memory."""
        return map(Entry.of_row, self._rows(db.JOURNAL, after))

    def _rows(self, table: sa.Table, after: int) -> Iterator[Any]:
        """Yield the rows of a table after a number, a thousand at a time in memory."""
        while True:
            query = sa.select(table).where(table.c.number > after).order_by(table.c.number).limit(1000)
            yield from (found := rows(self.engine, query))
            if len(found) < 1000:
                return
            after = found[-1].number

    def _link(self, connection: sa.Connection, entries: Sequence[Entry]) -> None:
        """Write the links of entries behind that of the entry before."""
        query = sa.select(db.LINKS.c.link).where(db.LINKS.c.number == entries[0].number - 1)
        before = connection.execute(query).scalar() or first_link(self._run)
        connection.execute(db.LINKS.insert(), chained(before, entries))

    def links(self, after: int = 0) -> Iterator[tuple[int, str]]:
        """Yield the number and the link of each entry after a number that has a link, a thousand at a time in memory."""
        return ((row.number, row.link) for row in (self._rows(db.LINKS, after) if self._has_links else ()))

    def link(self, number: int) -> str | None:
        """Return the link of an entry; None where there is none."""
        found = rows(self.engine, sa.select(db.LINKS.c.link).where(db.LINKS.c.number == number))
        return found[0].link if found else None

    def sizes(self, most: int = 256) -> list[dict[str, float]]:
        """Return the sizes of the vectors of the last reports, as `turnout_serve.server.run.usual` has written them.

        A report that was sent again before it was taken has several entries, and counts once.
        """
        query = sa.select(db.JOURNAL).where(db.JOURNAL.c.kind == "report", db.JOURNAL.c.task < FIRST_TASK)
        found = rows(self.engine, query.order_by(db.JOURNAL.c.number.desc()).limit(16 * most))
        last = list({row.task: row for row in reversed(found)}.values())[-most:]
        return [Entry.of_row(row).data.get("sizes", {}) for row in last]

    def keep_reports(self, after: int, digests: Iterable[str]) -> None:
        """Delete all reports but these, and those of entries after a number.

        Raises:
            StoreUnavailable: if the journal cannot be read now.
        """
        needed = {*digests, *(entry.digest for entry in self.entries(after) if entry.kind == "report")}
        self.files.keep_reports(needed)

    def compact(self, before: int) -> None:
        """Delete the journal before an entry, and the outcomes of all tasks but the last ones of each client.

        Starts and restarts remain: they hold the secrets that noise follows from.

        Raises:
            StoreUnavailable: if this is impossible now; nothing was deleted then.
        """
        last = sa.select(sa.func.max(db.TASKS.c.task)).group_by(db.TASKS.c.client, db.TASKS.c.task >= FIRST_TASK)
        with transaction(self.engine) as connection:
            if self._claim is not None:
                self._claim.verify(connection)
            begins = upsert_of(self.engine)(db.FACTS).values(name=BEGINS, value=str(before))
            connection.execute(
                begins.on_conflict_do_update(index_elements=["name"], set_={"value": begins.excluded.value})
            )
            old = (db.JOURNAL.c.number < before) & db.JOURNAL.c.kind.not_in(("start", "restart"))
            connection.execute(db.JOURNAL.delete().where(old))
            connection.execute(db.LINKS.delete().where(db.LINKS.c.number < before - 1))
            connection.execute(db.TASKS.delete().where(db.TASKS.c.task.not_in(last)))

    def until_done(self, write: Callable[[], object]) -> None:
        """Call a function that writes or reads something an entry needs, again and again as long as `wait` returns."""
        while True:
            try:
                write()
                return
            except (OSError, CheckpointError) as error:
                with suppress(StoreUnavailable):
                    self.check()
                self.wait(error)


def _inode(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file or folder; None where there is none.

    Raises:
        StoreUnavailable: if the disk does not say.
    """
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}") from error
    return stat.st_dev, stat.st_ino


def _refuse(error: Exception) -> None:
    if isinstance(error, StoreUnavailable):
        raise error
    raise StoreUnavailable(
        f"the folder of the run cannot be read or written: {error}. Free some space, or check the disk, and start again"
    ) from error
