"""Replay a deployment from its journal: recompute its model, and verify that nothing was changed since."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import torch

from turnout.core.checks import CheckpointError
from turnout.protocol.survey import ClosedSurvey
from turnout.record import checkpoint
from turnout.record.contents import restoring
from turnout_serve.server.journal.checkpoints import restore
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Entry, first_link
from turnout_serve.server.journal.receipts import Receipts
from turnout_serve.server.journal.retention import replay_start
from turnout_serve.server.journal.trace import Replayed, Visits
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.store.files import ReportLost
from turnout_serve.server.store.store import Store
from turnout_serve.wire.administrator import JOURNAL_FILE

_RESTORE = "restore the journal from a copy"


def replay(
    setting: RunSetting,
    folder: Path,
    database: str | None = None,
    store: str | None = None,
    whole: bool = False,
    client: int | None = None,
) -> Replayed:
    """Recompute a run from its journal and the reports of clients, and verify each entry, report and the checkpoint.

    Args:
        setting: setting of the run.
        folder: folder of the run.
        database: URL of the journal, if not in the folder.
        store: URL of its object store, if it has one. The one that the folder names is not reached unasked.
        whole: True to refuse a run whose first entries were deleted.
        client: number of the client whose receipts are returned; None for no client.

    Raises:
        CheckpointError: if a folder has no journal, if reports are missing, or at the first entry that was changed.
    """
    if database is None and not (folder / JOURNAL_FILE).is_file():
        raise CheckpointError(f"{folder} holds no {JOURNAL_FILE}: give the folder of a run that `turnout serve` made")
    saved = _Saved(folder)  # before the journal, which grows where the server is at work
    with closing(Store(folder, database, store, read_only=True)) as journal:
        driver, receipts = Driver(setting, journal), Receipts(client)
        driver.on_survey = (closed := list[ClosedSurvey]()).append

        def stepped(at: Driver) -> None:
            saved.compare(at)
            receipts.stepped(at)

        driver.on_step = stepped
        _restore_anchor(driver, folder, journal, whole)
        saved.compare(driver)
        begins, before = driver.version, driver.applied
        chain = Chain(journal.facts.run, journal.links(before - 1))
        visits, seconds = _applied(driver, folder, chain, saved, receipts)
        if next(journal.entries(driver.applied), None) is None:  # else a server has written more meanwhile
            chain.verify_end(driver.applied)
        saved.verify_end(driver)
        return Replayed(
            driver=driver,
            visits=visits,
            entries=driver.applied - before,
            seconds=seconds,
            same=saved.same,
            surveys=closed,
            receipts=receipts.listed(),
            begins=begins,
            head=chain.head,
            chained=chain.begins,
            first=before + 1,
        )


def _applied(driver: Driver, folder: Path, chain: Chain, saved: _Saved, receipts: Receipts) -> tuple[Visits, float]:
    """Verify and apply all further entries; return the visits of clients in them, and the seconds that they cover."""
    journal, visits, first, last = driver.store, Visits(), None, 0.0
    lost = journal.facts.lost()
    for entry in journal.entries(driver.applied):
        chain.verify(entry)
        _check_report(journal, entry, lost)
        version = driver.version
        running = driver.run is not None and getattr(
            driver.run.scheduler.pace, "running", False
        )  # the cohort is selected
        with restoring(f"entry {entry.number} of the journal of {folder}", entry.kind):
            receipts.arrived(driver, entry)
            effects = driver.apply(entry)
            visits.note(driver, entry, effects, version, running)
            receipts.ended(effects)
        saved.compare_head(entry.number, chain.head)
        first, last = entry.time if first is None else first, entry.time
    visits.end(driver, last)
    return visits, last - (first or 0.0)


def _restore_anchor(driver: Driver, folder: Path, journal: Store, whole: bool) -> None:
    """Restore the oldest checkpoint that the server has kept, where the entries before it were deleted.

    Raises:
        CheckpointError: if the whole journal is needed, or the checkpoint is damaged.
    """
    if (anchor := replay_start(folder, journal)) is None:
        return
    if whole:
        raise CheckpointError(
            f"the journal of {folder} begins at step {anchor.version}, for the server was told to keep no more "
            "(--keep-reports): a trace needs all of it"
        )
    with restoring(anchor.path / checkpoint.FILE, "the run"):
        restore(driver, *checkpoint.load(anchor.path), folder)


def _check_report(journal: Store, entry: Entry, lost: set[int]) -> None:
    """Check that the file of a report is what the journal says, also if no step has used it.

    Raises:
        CheckpointError: if it is missing or was changed, and the server has not gone on without it.
    """
    if entry.kind != "report" or entry.task in lost:
        return
    try:
        with restoring(f"entry {entry.number} of the journal", "report"):
            journal.files.check_report(entry.body, entry.data.get("size"))
    except ReportLost as error:
        raise CheckpointError(
            f"the journal breaks at entry {entry.number:,}, a report of client {entry.client} on task {entry.task}: {error}"
        ) from error


class Chain:
    """Verify the links of a journal while its entries are read, so that no changed entry goes unnoticed.

    A printed head, or that of a checkpoint, is evidence for all entries up to it; see `Entry.link`.

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
                f"behind entry {entry.number - 1:,}: {_RESTORE}"
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
                f"the journal breaks behind entry {last:,}: the server has written further ones, which are missing: "
                f"{_RESTORE}"
            )


class _Saved:
    """Compare a replay with the checkpoint of a run's folder.

    Attributes:
        same: whether the model of the same version is the same, bit for bit; None without a checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.same: bool | None = None
        self._folder = folder
        self._tensors, self._facts = checkpoint.load(folder) if checkpoint.exists(folder) else ({}, {})

    def compare(self, driver: Driver) -> None:
        """Compare the model, if it is of the version of the checkpoint."""
        if self._facts and driver.version == self._facts.get("version"):
            with restoring(self._folder / checkpoint.FILE, "model/params"):
                self.same = torch.equal(driver.params, self._tensors["model/params"])

    def compare_head(self, number: int, head: str | None) -> None:
        """Compare the link of an entry with that of the checkpoint, if it was saved after this entry.

        Raises:
            CheckpointError: if it is another one.
        """
        known = self._facts.get("head")
        if known is not None and number == self._facts.get("journal") and head != known:
            raise CheckpointError(
                f"the journal breaks at or before entry {number:,}: {self._folder / checkpoint.FILE} was saved after another "
                f"entry {number:,}: {_RESTORE}"
            )

    def verify_end(self, driver: Driver) -> None:
        """Verify that the journal has led to the checkpoint.

        Raises:
            CheckpointError: if it ends before.
        """
        number, version = self._facts.get("journal", 0), self._facts.get("version", 0)
        if driver.applied < number:
            raise CheckpointError(
                f"the journal breaks behind entry {driver.applied:,} (step {driver.version:,}): the checkpoint of "
                f"{self._folder} was saved after entry {number:,} (step {version:,}): {_RESTORE}"
            )
        if self._facts and driver.version == version == 0:
            self.compare(driver)
        if self._facts and self.same is None:
            raise CheckpointError(
                f"the journal of {self._folder} does not lead to step {version:,}, that of its checkpoint: {_RESTORE}"
            )
