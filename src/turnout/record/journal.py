"""Append the rounds of a run to a file, a few at a time, so that neither memory nor a save grows with the run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from turnout.core.checks import CheckpointError
from turnout.record import storage

FILE = "history.journal"

_LENGTH, _DIGEST = 8, 32  # bytes before the tables of an entry


class Rounds(NamedTuple):
    """Some consecutive rounds.

    Attributes:
        table: one row a round; columns without any number have the type null, which takes no memory.
        participation: one row (round, client) for each participant of each of them.
    """

    table: pa.Table
    participation: pa.Table

    @property
    def last(self) -> int:
        """The last of them."""
        return self.table["round"][-1].as_py()

    def up_to(self, last: int) -> Rounds:
        """Return those up to the round `last`."""
        return Rounds(*(part.filter(pa.array(part["round"].to_numpy() <= last)) for part in self))


class Journal:
    """A file of entries: ``length (8 bytes) | SHA-256 of the tables (32) | two Arrow IPC streams``, each some rounds.

    An entry that the file is too short for was being written when the process was killed. It is not read.

    Args:
        path: the file; it need not exist.
        end: where the next entry begins, in bytes. Whatever the file holds after it is overwritten.
    """

    def __init__(self, path: Path, end: int = 0) -> None:
        self.path, self.end = path, end

    @classmethod
    def cut(cls, path: Path, last: int) -> tuple[Journal, list[Rounds]]:
        """Open a journal that ends with the round `last`; nothing after that round is read.

        Returns:
            The journal with all entries up to that round, and the rounds up to it of an entry that goes beyond.

        Raises:
            CheckpointError: where an entry is damaged.
        """
        journal, reached = cls(path), 0
        for entry, end in _entries(path) if last else ():
            if (reached := entry.last) > last:
                rest = entry.up_to(last)
                return journal, [rest] if len(rest.table) else []
            journal.end = end
            if reached == last:
                break
        return journal, []

    def append(self, entry: Rounds) -> None:
        """Add an entry and flush it to the disk.

        Raises:
            CheckpointError: where it cannot be written.
        """
        try:
            storage.create(self.path.parent)
            self.path.touch()
            with self.path.open("r+b") as file:
                file.seek(self.end)
                file.truncate()
                file.write(_packed(entry))
                file.flush()
                os.fsync(file.fileno())
                self.end = file.tell()
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.path}: {error}. The last checkpoint is unchanged: free some space or give another folder"
            ) from error

    def entries(self) -> Iterator[Rounds]:
        """Read the entries, one after another.

        Raises:
            CheckpointError: where one is damaged.
        """
        if self.end:
            for entry, end in _entries(self.path):
                yield entry
                if end >= self.end:
                    return


def read(path: Path) -> Iterator[Rounds]:
    """Read all whole entries of a file, which need not exist.

    Raises:
        CheckpointError: where one is damaged.
    """
    return (entry for entry, _ in _entries(path))


def _entries(path: Path) -> Iterator[tuple[Rounds, int]]:
    """Read all whole entries of a file, each with the place where it ends."""
    if path.exists():
        with path.open("rb") as file:
            while (entry := _next(path, file)) is not None:
                yield entry, file.tell()


def _next(path: Path, file: BinaryIO) -> Rounds | None:
    """Read an entry; None at the end."""
    head = file.read(_LENGTH + _DIGEST)
    length = int.from_bytes(head[:_LENGTH], "little")
    if len(head) < _LENGTH + _DIGEST or length > path.stat().st_size - file.tell():
        return None
    tables = file.read(length)
    if hashlib.sha256(tables).digest() != head[_LENGTH:]:
        raise CheckpointError(
            f"{path} is damaged (an entry does not have its digest): restore it from a copy, or run again"
        )
    source = pa.BufferReader(tables)
    return Rounds(*(pa.ipc.open_stream(source).read_all() for _ in Rounds._fields))


def _packed(entry: Rounds) -> bytes:
    """Return the bytes of an entry."""
    sink = pa.BufferOutputStream()
    for table in entry:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    tables = sink.getvalue().to_pybytes()
    return len(tables).to_bytes(_LENGTH, "little") + hashlib.sha256(tables).digest() + tables
