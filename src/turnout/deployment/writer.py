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
from typing import Any

from turnout.core.checks import CheckpointError
from turnout.deployment.driver import Driver
from turnout.deployment.figures import snapshot
from turnout.deployment.happening import Happening
from turnout.deployment.leases import RunClock
from turnout.deployment.store import Entry, Outcome, Store, StoreUnavailable
from turnout.deployment.verdicts import Verdict
from turnout.storage import FolderGone, create

log = logging.getLogger("turnout.server")


class Writer(ABC):
    """What waits for the journal, and who writes it.

    Args:
        driver: the coordinator in motion, after all that is in the journal.
        store: where the journal is.
        last: the last entry of the journal; None where it is empty.
        clock: seconds that the server has run; None is a clock that goes on behind the last entry.
        checkpoint_every: seconds between two checkpoints, if there was a step in between.
        discard: delete reports that no checkpoint needs any more; there is no replay then.

    Attributes:
        woken: called with clients whose question for work can be answered now, by whichever thread found out.
        healthy: whether the journal could be written when it was last tried.
        failure: why the server cannot go on, if it cannot; nothing is saved then but what is in the journal.
        figures: those behind the last group of entries; never changed, only replaced.
        draining: whether the server is about to stop, and nobody is to wait for work any more.
    """

    def __init__(
        self,
        driver: Driver,
        store: Store,
        last: Entry | None,
        clock: Callable[[], float] | None,
        checkpoint_every: float,
        discard: bool,
    ) -> None:
        self.driver, self.store = driver, store
        self.clock = clock or RunClock(last.time if last else 0.0)
        self.woken: Callable[[Iterable[int]], None] = lambda _: None
        self.healthy = True
        self.failure: Exception | None = None
        self.draining = self.stopping = False
        self.figures = snapshot(driver)
        self._number = last.number if last else 0
        self._lock, self._queue = threading.Condition(), list[Happening]()
        self._outcomes: list[Outcome] = []
        self._thread: threading.Thread | None = None
        self._saved, self._every, self._discard = (time.monotonic(), driver.version), checkpoint_every, discard
        if discard:
            store.fact("discards", "since the first start with --discard-reports")

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
            self.finish()

    def finish(self) -> None:
        """Write what is left, and a checkpoint; where it cannot be written, the journal goes on without.

        Raises:
            FolderGone: where there is nowhere to write any more.
        """
        try:
            self.store.commit([], outcomes=self._outcomes)
            self._outcomes = []
            self.driver.save(self._discard)
        except FolderGone:
            raise
        except CheckpointError as error:
            log.error("no checkpoint", extra={"reason": str(error)})
        self._saved = time.monotonic(), self.driver.version

    def flush(self) -> bool:
        """Write, apply and answer all that waits; return whether there was anything.

        Raises:
            StoreUnavailable: where the journal cannot be written now; everything waits on then.
        """
        with self._lock:
            batch, self._queue = self._queue, []
        if not batch and not self._outcomes:
            return False
        codes = set[str]()
        admitted = [waiting for waiting in self._unchanged(batch) if self._admitted(waiting, codes)]
        entries = self._commit(admitted)
        woken: list[int] = []
        for entry, waiting in zip(entries, admitted, strict=True):
            woken += self._apply(entry, waiting)
        self.figures = snapshot(self.driver, self.figures)
        if woken or self.driver.over is not None:
            self.woken(woken)
        then, version = self._saved
        if self.driver.version > version and (self.driver.over or time.monotonic() - then >= self._every):
            self.finish()
        return True

    def _unchanged(self, batch: list[Happening]) -> list[Happening]:
        """Answer the reports whose file is not what was checked; return everything else."""
        reports = [(each.file, each.digest) for each in batch if each.file is not None and each.digest is not None]
        damaged = self.store.damaged(reports)
        for each in batch:
            if each.file in damaged:
                log.error("report damaged", extra={"client": each.client, "task": each.task})
                each.file.unlink(missing_ok=True)
                each.answer(
                    Verdict(409, {"reason": "the report was damaged on the server: send it again", "offset": 0})
                )
        return [each for each in batch if each.file not in damaged]

    def _admitted(self, waiting: Happening, codes: set[str]) -> bool:
        """Return whether something is to be written; what raises is answered with the error."""
        try:
            return self._admit(waiting, codes)
        except Exception as error:
            log.exception("an event failed", extra={"kind": waiting.kind, "client": waiting.client})
            waiting.fail(error)
            return False

    def _commit(self, admitted: list[Happening]) -> list[Entry]:
        """Write happenings to the journal and return its entries; where that fails, they wait on."""
        wall, now = time.time(), self.clock()
        entries = [
            Entry(number, now, wall, each.kind, each.client, each.task, each.digest, each.data)
            for number, each in enumerate(admitted, self._number + 1)
        ]
        arrived = [
            (each.file, self.store.report(each.digest)) for each in admitted if each.file is not None and each.digest
        ]
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
        failures = 0
        while True:
            try:
                pause = self.tick()
                busy = self.flush()
                failures = 0
            except StoreUnavailable as error:
                failures += 1
                log.error("journal cannot be written", extra={"reason": str(error), "attempt": failures})
                if self.stopping and failures > 3:
                    return
                time.sleep(min(2.0, 0.05 * 2**failures))
                continue
            except Exception as error:
                self.failure = error
                log.critical("the server cannot go on: start it again, and it will from its journal", exc_info=True)
                self.draining, self.stopping, self.healthy = True, True, False
                self.woken(())
                return
            with self._lock:
                if self.stopping and not self._queue:
                    return
                if not busy and not self._queue:
                    self._lock.wait(min(pause, 1.0))

    def _put(self, waiting: Happening) -> Future[Any]:
        """Have something wait for the journal."""
        with self._lock:
            self._queue.append(waiting)
            self._lock.notify()
        return waiting.done
