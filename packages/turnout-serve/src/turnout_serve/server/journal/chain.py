"""Verify that the entries of a journal are chained, so that whoever has its head can tell whether any of them was changed.

A printed head, or that of a checkpoint, is evidence for all entries up to it; see `Entry.link`.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnout.core.checks import CheckpointError
from turnout_serve.server.journal.entries import Entry, first_link

RESTORE = "restore the journal from a copy"


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
        link = entry.link(self._before[1])
        if (not first and self._before[0] != entry.number - 1) or self._next != (entry.number, link):
            raise CheckpointError(
                f"the journal breaks at entry {entry.number:,}, a {entry.kind!r}: the server has not written it so, or not "
                f"behind entry {entry.number - 1:,}: {RESTORE}"
            )
        self.begins = self.begins or entry.number
        self.head = link

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
