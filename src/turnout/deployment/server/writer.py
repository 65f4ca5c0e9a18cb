"""The one thread of a server that writes the journal, applies it, and answers.

Everything that changes something waits in a queue. The thread takes all that waits, writes it to the journal together,
applies it in the order of the journal, and only then answers. So the coordinator hears of nothing that could be lost.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from turnout.core.checks import CheckpointError, Diverged, count, counted
from turnout.deployment.server.blame import PieceFailed
from turnout.deployment.server.driver import Driver
from turnout.deployment.server.figures import snapshot
from turnout.deployment.server.happening import Happening
from turnout.deployment.server.leases import RunClock
from turnout.deployment.server.options import Options
from turnout.deployment.server.retention import Retention
from turnout.deployment.server.store import Entry, Outcome, Store, StoreLost, StoreUnavailable
from turnout.deployment.server.verdicts import Verdict
from turnout.deployment.server.visits import UnwrittenVisits
from turnout.record.lock import FolderGone, create

_MOST_ENTRIES = 20_000  # without a step, for which a restart has to apply the journal

log = logging.getLogger("turnout.server")


class Writer(ABC):
    """Queue of happenings that wait for the journal, and the thread that writes and applies them.

    Args:
        driver: the coordinator in motion, after all that is in the journal.
        store: where the journal is.
        last: the last entry of the journal; None where it is empty.
        options: of the server.
        clock: seconds that the server has run; None is a clock that goes on behind the last entry.

    Attributes:
        woken: called with clients whose question for work can be answered now, by whichever thread found out.
        healthy: whether the journal could be written when it was last tried.
        failure: why the server cannot go on, if it cannot; of `Diverged` a checkpoint is saved, otherwise nothing but what is
            in the journal, from which the next start goes on.
        unsaved: why the last checkpoint could not be saved; None where it was.
        figures: those behind the last group of entries; never changed, only replaced.
        draining: whether the server is about to stop, and nobody is to wait for work any more.
    """

    def __init__(
        self,
        driver: Driver,
        store: Store,
        last: Entry | None,
        options: Options,
        clock: Callable[[], float] | None,
    ) -> None:
        self.driver, self.store = driver, store
        self.clock = clock or RunClock(last.time if last else 0.0)
        self.woken: Callable[[Iterable[int]], None] = lambda _: None
        self.healthy = True
        self.failure: Exception | None = None
        self.unsaved: str | None = None
        self.draining = self.stopping = False
        self.figures = snapshot(driver)
        self._number = last.number if last else 0
        self._lock, self._queue = threading.Condition(), list[Happening]()
        self._outcomes: list[Outcome] = []
        self._thread: threading.Thread | None = None
        self._saved, self._every = (time.monotonic(), driver.progress, driver.applied), options.checkpoint_every
        self._visits = UnwrittenVisits(driver)
        self._retention = Retention(store, options.keep_reports)
        count("max_empty_steps", options.max_empty_steps, least=0)
        self._max_empty_steps = options.max_empty_steps
        self._failures = 0  # writes in a row that failed
        if driver.run is not None:  # those of an earlier process ended that one, and this one is a new attempt
            driver.run.empty_steps = 0
        store.wait = self._wait

    @abstractmethod
    def tick(self) -> float:
        """Note whose time is up; return how many seconds nothing more of this kind will happen."""

    @abstractmethod
    def _admit(self, waiting: Happening, codes: set[str]) -> bool:
        """Return whether something is to be written; if not, it is answered."""

    @abstractmethod
    def _apply(self, entry: Entry, waiting: Happening) -> list[int]:
        """Do what follows of an entry, and answer; return whose question for work can be answered now."""

    def begin(self) -> None:
        """Start the thread that writes, applies and answers."""
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write and answer what waits, save a checkpoint, and end."""
        with self._lock:
            self.draining = self.stopping = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self.failure is None:
            try:
                with suppress(StoreUnavailable):
                    self._write(self._visits.due())
                self.finish()
            except (FolderGone, StoreLost) as error:
                self.failure = error

    def finish(self) -> None:
        """Write what is left, and a checkpoint; where it cannot be written now, the journal goes on without.

        Raises:
            FolderGone, StoreLost: where the folder was removed, or another server has the journal.
        """
        try:
            self.store.commit([], outcomes=self._outcomes)
            self._outcomes = []
            self.driver.save()
            self.unsaved = None
            self._retain()
        except (FolderGone, StoreLost):
            raise
        except CheckpointError as error:
            log.error("no checkpoint", extra={"reason": str(error)})
            self.unsaved = str(error)
        self._saved = time.monotonic(), self.driver.progress, self.driver.applied

    def _retain(self) -> None:
        """Delete what is not to be kept; where that fails, it is for the next time."""
        try:
            self._retention.saved(self.driver)
        except (FolderGone, StoreLost):
            raise
        except (CheckpointError, OSError) as error:
            log.error("nothing is deleted", extra={"reason": str(error)})

    def flush(self) -> bool:
        """Write, apply and answer all that waits; return whether there was anything.

        Raises:
            StoreUnavailable: where the journal cannot be written now; everything waits on then.
            StoreLost: where the folder was removed, or another server has it.
            Diverged: where the run comes to nothing.
        """
        self.store.check()
        with self._lock:
            batch, self._queue = self._queue, []
        if not batch and not self._outcomes:
            return False
        codes, busy, admitted = set[str](), set[int | None](), list[Happening]()
        for waiting in self._unchanged(batch):
            # What is put off is written first of all, so it must not overtake something of the same client.
            if (waiting.client in busy or not self._visits.take(waiting)) and self._admitted(waiting, codes):
                admitted.append(waiting)
                busy.add(waiting.client)
        if not admitted and not self._outcomes:
            return True
        # Visits that were put off come first: a step that follows from the other entries may depend on who is there.
        woken = self._write([*self._visits.due(), *admitted])
        self.figures = snapshot(self.driver, self.figures)
        if woken or self.driver.over is not None:
            self.woken(woken)
        self._save_if_due()
        self.check_progress()
        return True

    def _save_if_due(self) -> None:
        """Save a checkpoint from time to time, so that a restart takes no longer however long a run is."""
        then, progress, applied = self._saved
        went_on, waited = self.driver.progress > progress, time.monotonic() - then >= self._every
        many = self.driver.applied - applied >= _MOST_ENTRIES
        if (went_on and (waited or self.driver.over)) or (waited and many):
            self.finish()

    def _write(self, admitted: list[Happening]) -> list[int]:
        """Write happenings to the journal, apply them, and answer; return whose question for work can be answered now."""
        woken: list[int] = []
        for entry, waiting in zip(self._commit(admitted), admitted, strict=True):
            woken += self._apply(entry, waiting)
        return woken

    def _unchanged(self, batch: list[Happening]) -> list[Happening]:
        """Answer the reports whose file is not what was checked; return everything else."""
        reports = [
            (waiting.file, waiting.digest)
            for waiting in batch
            if waiting.file is not None and waiting.digest is not None
        ]
        damaged = self.store.files.damaged(reports)
        for waiting in batch:
            if waiting.file in damaged:
                log.error("report damaged", extra={"client": waiting.client, "task": waiting.task})
                waiting.file.unlink(missing_ok=True)
                waiting.answer(
                    Verdict(409, {"reason": "the report was damaged on the server: send it again", "offset": 0})
                )
        return [waiting for waiting in batch if waiting.file not in damaged]

    def _admitted(self, waiting: Happening, codes: set[str]) -> bool:
        """Return whether something is to be written; what raises is answered with the error."""
        try:
            return self._admit(waiting, codes)
        except Exception as error:
            log.exception("an event failed", extra={"kind": waiting.kind, "client": waiting.client})
            waiting.fail(error)
            return False

    def check_progress(self) -> None:
        """End a run that goes on without coming to anything.

        Raises:
            Diverged: where the model is not finite, or too many steps in a row had no report that could be used.
        """
        driver = self.driver
        if not driver.publication.finite:
            raise Diverged(f"the model of step {driver.version} holds NaN or infinity: restore a backup from before")
        if driver.over is None and 0 < self._max_empty_steps <= driver.empty_steps:
            dropped = {} if driver.ledger is None else driver.ledger.dropped
            counts = ", ".join(f"{reason} {number:,}" for reason, number in sorted(dropped.items())) or "none"
            raise Diverged(
                f"no report could be used in the last {counted(driver.empty_steps, 'step')}, up to step {driver.version} "
                f"(tasks dropped so far: {counts}): clients diverge, or cannot do their task in time. Start the server "
                "again to go on, restore a backup from before if the model is ruined, or write --max-empty-steps 0"
            )

    def _commit(self, admitted: list[Happening]) -> list[Entry]:
        """Write happenings to the journal and return its entries; where that fails, they wait on."""
        wall, now = time.time(), self.clock()
        entries = [
            Entry(number, now, wall, waiting.kind, waiting.client, waiting.task, waiting.digest, waiting.data)
            for number, waiting in enumerate(admitted, self._number + 1)
        ]
        arrived = [
            (waiting.file, waiting.digest) for waiting in admitted if waiting.file is not None and waiting.digest
        ]
        # Outcomes follow from entries that were applied before. They are written with the next group, so that they cost no
        # transaction of their own; a server that dies in between derives them from the journal again.
        outcomes = list(self._outcomes)
        try:
            self.store.commit(entries, arrived, outcomes)
        except StoreUnavailable:
            self.healthy = False
            create(self.store.folder)  # raises where it is gone for good
            with self._lock:
                self._queue = admitted + self._queue
            raise
        self.healthy = True
        self._number += len(entries)
        self._outcomes = self._outcomes[len(outcomes) :]
        return entries

    def _work(self) -> None:
        """Write, apply and answer until told to stop."""
        while True:
            try:
                pause = self.tick()
                busy = self.flush()
                self._failures = 0
            except StoreUnavailable as error:
                try:
                    self._wait(error)
                except StoreUnavailable:  # told to stop
                    return
                continue
            except Diverged as error:
                log.critical("the run has failed", extra={"reason": str(error)})
                self.finish()
                self._fail(error)
                return
            except PieceFailed as error:
                log.critical("the run has failed", exc_info=True)
                self._fail(error)
                return
            except (FolderGone, StoreLost) as error:
                log.critical("the server cannot go on", extra={"reason": str(error)})
                self._fail(error, stops=True)
                return
            except Exception as error:
                log.critical("the server cannot go on: start it again, and it will from its journal", exc_info=True)
                self._fail(error, stops=True)
                return
            with self._lock:
                if self.stopping and not self._queue:
                    return
                if not busy and not self._queue:
                    self._lock.wait(min(pause, 1.0))

    def _wait(self, error: Exception) -> None:
        """Pause after a write that failed, longer each time; whoever has called tries again.

        This is what a server does about every write: it answers nothing that is not on the disk, tells of it in its status
        and its log, and goes on when there is room again.

        Raises:
            StoreUnavailable: where the server is to stop; what is in the journal is applied at the next start.
        """
        self._failures += 1
        self.healthy = False
        log.error("cannot write", extra={"reason": str(error), "attempt": self._failures})
        if self.stopping and self._failures > 3:
            raise StoreUnavailable(f"{self.store.folder} cannot be written: {error}") from error
        time.sleep(min(2.0, 0.05 * 2 ** min(self._failures, 6)))

    def _fail(self, error: Exception, stops: bool = False) -> None:
        """Note why the server cannot go on; one that stops answers nobody any more."""
        self.failure, self.draining, self.healthy = error, True, False
        self.stopping = self.stopping or stops
        self.woken(())

    def _put(self, waiting: Happening) -> Future[Any]:
        """Have something wait for the journal."""
        with self._lock:
            self._queue.append(waiting)
            self._lock.notify()
        return waiting.done
