"""Append the rounds of a run to a log, which holds recent rounds in memory and earlier ones in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from turnout.core.checks import CheckpointError
from turnout.core.system import flush
from turnout.record import contents, lock
from turnout.record.schema import PARTICIPATION_COLUMNS, ROUND_COLUMNS
from turnout.record.tables import array_of, check, concatenated, damaged, numbers, read_stream, schema_of

FILE = "history.journal"
"""The file of the log in the folder of a run."""

_LENGTH, _DIGEST = 8, 32  # bytes before the tables of an entry
_MAX_ROWS = 1024  # rounds held as Python numbers, which take ten times the memory of a table


class Rounds(NamedTuple):
    """Consecutive rounds as tables.

    Attributes:
        table: one row for each round; columns without values have the type null, which takes no memory.
        participation: one row (round, client) for each participant of each round.
    """

    table: pa.Table
    participation: pa.Table

    @property
    def last(self) -> int:
        """The last round."""
        return self.table["round"][-1].as_py()

    def up_to(self, last: int) -> Rounds:
        """Return the rounds up to the round `last`."""
        return Rounds(*(part.slice(0, np.searchsorted(numbers(part["round"]), last, side="right")) for part in self))


class Log:
    """An append-only log of rounds, ascending.

    The last rounds are Python numbers; earlier ones are Arrow tables in memory or, after `append_to`, entries of a file:
    ``length (8 bytes) | SHA-256 of the tables (32) | two Arrow IPC streams``. An incomplete last entry, of a process that was
    killed while writing, is ignored.

    Args:
        parts: the first rounds, in memory.

    Attributes:
        last: the last round; 0 if there is none.
    """

    def __init__(self, parts: Iterable[Rounds] = ()) -> None:
        self.last = self._length = 0
        self._columns: set[str] = set()  # columns with values
        self._has_weights = False
        self._path: Path | None = None
        self._end = 0  # end of the valid entries in the file, in bytes; anything after it is overwritten
        self._tables: list[Rounds] = []
        self._rows: list[tuple[Mapping[str, Any], np.ndarray, np.ndarray | None]] = []
        for part in parts:
            if len(part.table):
                self._tables.append(part)
                self._count(part)

    @classmethod
    def open(cls, path: Path, last: int | None = None) -> Log:
        """Open the log in a file, for reading and appending.

        Args:
            path: the file, which need not exist.
            last: the last round to read; None reads all rounds.

        Raises:
            CheckpointError: if an entry up to that round is damaged.
        """
        log = cls()
        log._path = path
        for entry, end in _entries(path) if last != 0 else ():
            if last is not None and entry.last > last:
                if len((rest := entry.up_to(last)).table):
                    log._tables.append(rest)  # the next append writes these rounds again, in place of the whole entry
                    log._count(rest)
                break
            log._end = end
            log._count(entry)
            if entry.last == last:
                break
        return log

    def __len__(self) -> int:
        """Return the number of rounds."""
        return self._length

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table of rounds."""
        return schema_of(ROUND_COLUMNS, self._columns - ROUND_COLUMNS.keys())

    @property
    def participation_schema(self) -> pa.Schema:
        """The columns of the table of participation."""
        return schema_of(PARTICIPATION_COLUMNS, ("weight",) if self._has_weights else ())

    def add(self, row: Mapping[str, Any], cohort: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add a round.

        Args:
            row: its values by column; None is unknown.
            cohort: its participants, int64 ``[B]``.
            weights: their weights, ``[B]``; None is not recorded.
        """
        self._columns |= {name for name, value in row.items() if value is not None}
        self._rows.append((row, cohort, weights))
        self._has_weights |= weights is not None
        self.last, self._length = row["round"], self._length + 1
        if len(self._rows) >= _MAX_ROWS:
            self._tabulate()

    def up_to(self, last: int) -> Log:
        """Return the rounds up to `last`, in memory, without columns that only later rounds have."""
        return Log(part.up_to(last) for part in self.parts())

    def append_to(self, path: Path) -> None:
        """Move the rounds in memory to the end of a file, and flush it; a file other than the last one gets all rounds.

        Raises:
            CheckpointError: if they cannot be written.
        """
        self._tabulate()
        if self._path != path:
            self._tables, self._path, self._end = list(self.parts()), path, 0
        if self._tables:
            content = _packed(self._joined(self._tables))
            if path.is_symlink():
                raise CheckpointError(
                    f"{path} is a link, and runs write within their folder: put the file in its place"
                )
            try:
                with lock.open_file(path) as file:
                    file.seek(self._end)
                    file.truncate()
                    file.write(content)
                    file.flush()
                    flush(file.fileno())
            except OSError as error:
                raise CheckpointError(
                    f"cannot write {path}: {error}. The last checkpoint is unchanged: free some space or give another folder"
                ) from error
            self._tables, self._end = [], self._end + len(content)

    def parts(self) -> Iterator[Rounds]:
        """Yield all rounds in parts.

        Raises:
            CheckpointError: if an entry of the file is damaged.
        """
        self._tabulate()
        if self._path is not None and self._end:
            for entry, end in _entries(self._path):
                yield entry
                if end >= self._end:
                    break
        yield from self._tables

    def whole(self) -> Rounds:
        """Return all rounds as one part."""
        return self._joined(self.parts())

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column of the table of rounds."""
        schema = pa.schema([self.schema.field(name)])
        return concatenated((part.table for part in self.parts()), schema)[name]

    def _joined(self, parts: Iterable[Rounds]) -> Rounds:
        """Concatenate parts."""
        parts = list(parts)
        table = concatenated((part.table for part in parts), self.schema)
        return Rounds(table, concatenated((part.participation for part in parts), self.participation_schema))

    def _tabulate(self) -> None:
        """Convert the rounds that are held as Python numbers to a table."""
        if not self._rows:
            return
        rows, cohorts, weights = zip(*self._rows, strict=True)
        self._rows = []
        columns = {field.name: _column([row.get(field.name) for row in rows], field.type) for field in self.schema}
        when = np.repeat([row["round"] for row in rows], list(map(len, cohorts)))
        participation = {"round": when, "client": np.concatenate(cohorts)}
        if self._has_weights:
            known = (np.full(len(of), np.nan) if own is None else own for of, own in zip(cohorts, weights, strict=True))
            participation["weight"] = np.concatenate(list(known))
        arrays = [array_of(participation[f.name], f.type, nan_is_null=True) for f in self.participation_schema]
        self._tables.append(Rounds(pa.table(columns), pa.table(arrays, schema=self.participation_schema)))

    def _count(self, part: Rounds) -> None:
        """Update the number of rounds and the columns by a part."""
        self._length += len(part.table)
        self.last = part.last
        names = part.table.column_names
        self._columns |= {name for name in names if part.table[name].null_count < len(part.table)}
        self._has_weights |= "weight" in part.participation.column_names


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of this type; of type null if there are no values."""
    is_empty = all(value is None for value in values)
    return pa.nulls(len(values)) if is_empty else array_of(values, kind)


def _entries(path: Path) -> Iterator[tuple[Rounds, int]]:
    """Yield all complete entries of a file, each with the position of its end."""
    if not path.exists():
        return
    contents.check_regular(path)
    last = 0
    with contents.readable(path), path.open("rb") as file:
        while (entry := _next(path, file)) is not None:
            rounds = numbers(entry.table["round"])
            if not len(rounds) or rounds[0] <= last or (np.diff(rounds) <= 0).any():
                raise damaged(path, "its rounds do not ascend")
            last = entry.last
            yield entry, file.tell()


def _next(path: Path, file: BinaryIO) -> Rounds | None:
    """Read an entry; None at the end of the file, or if the entry is incomplete."""
    head = file.read(_LENGTH + _DIGEST)
    length = int.from_bytes(head[:_LENGTH], "little")
    if len(head) < _LENGTH + _DIGEST or length > path.stat().st_size - file.tell():
        return None
    tables = file.read(length)
    if hashlib.sha256(tables).digest() != head[_LENGTH:]:
        raise contents.damaged(path, "an entry does not have its digest")
    try:
        source = pa.BufferReader(tables)
        entry = Rounds(*(read_stream(source) for _ in Rounds._fields))
        for part in entry:
            part.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise damaged(path, str(error)) from error
    for part, types in zip(entry, (ROUND_COLUMNS, PARTICIPATION_COLUMNS), strict=True):
        check(path, part, types, may_be_null=True)
    return entry


def _packed(entry: Rounds) -> bytes:
    """Return the bytes of an entry."""
    sink = pa.BufferOutputStream()
    for table in entry:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    tables = sink.getvalue().to_pybytes()
    return len(tables).to_bytes(_LENGTH, "little") + hashlib.sha256(tables).digest() + tables
