"""Chain the entries of a journal, so that whoever has its head can tell whether any of them was changed.

The link of an entry is the SHA-256 of the link before it and of the entry, in which the digests of reports are. The first
link is that of the name of the run. A printed head, or that of a checkpoint, is evidence for all entries up to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

from turnout.core.checks import CheckpointError
from turnout_serve.server.journal.entries import Entry

RESTORE = "restore the journal from a copy"


def first_link(run: str) -> str:
    """Return the link before the first entry of a chain."""
    return hashlib.sha256(f"turnout journal {run}".encode()).hexdigest()


def link(before: str, entry: Entry) -> str:
    """Return the link of an entry.

    Args:
        before: the link before it.
        entry: the entry.

    >>> one = Entry(1, 0.5, 0.0, "enrol", 0, None, "ab", {"name": "north"})
    >>> link(first_link("r"), one)[:16]
    '7ef02b9d2e52e772'
    """
    fields = [entry.number, entry.time, entry.wall, entry.kind, entry.client, entry.task, entry.digest, entry.data]
    content = json.dumps([before, *fields], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def chained(before: str, entries: Iterable[Entry]) -> Iterator[tuple[int, str]]:
    """Yield the number and the link of each entry that follows the link before."""
    for entry in entries:
        yield entry.number, (before := link(before, entry))


class Chain:
    """Verify the links of a journal while its entries are read.

    Args:
        run: name of the run.
        links: number and link of each entry that has one, from the one before the first entry that is verified.

    Attributes:
        head: link of the last entry; None before the first that has one.
        begins: number of the first entry that has a link; earlier versions wrote none. None before it.
    """

    def __init__(self, run: str, links: Iterator[tuple[int, str]]) -> None:
        self._links = links
        self._before, self._next = (0, first_link(run)), next(links, None)
        self.head: str | None = None
        self.begins: int | None = None

    def verify(self, entry: Entry) -> None:
        """Verify the next entry.

        Raises:
            CheckpointError: if it was changed, or its link was.
        """
        while self._next is not None and self._next[0] < entry.number:
            self._before, self._next = self._next, next(self._links, None)
        if self.begins is None and (self._next is None or self._next[0] > entry.number):
            return  # of an earlier version, or behind one
        first = self.begins is None and self._before[0] == 0
        if (not first and self._before[0] != entry.number - 1) or self._next != (
            entry.number,
            link(self._before[1], entry),
        ):
            raise CheckpointError(
                f"the journal breaks at entry {entry.number:,}, a {entry.kind!r}: the server has not written it so, or not "
                f"behind entry {entry.number - 1:,}: {RESTORE}"
            )
        self.begins = self.begins or entry.number
        self.head = link(self._before[1], entry)

    def verify_end(self, last: int) -> None:
        """Verify that the journal ends where its links do.

        Raises:
            CheckpointError: if entries are missing behind the last one.
        """
        while self._next is not None and self._next[0] <= last:
            self._next = next(self._links, None)
        if self._next is not None:
            raise CheckpointError(
                f"the journal breaks behind entry {last:,}: the server has written further ones, which are missing: {RESTORE}"
            )
