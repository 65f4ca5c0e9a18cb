"""The one thread of a server that writes events to the journal, applies them, and answers them.

Every change of state waits in a queue. The thread takes all events that wait, commits them in one transaction, applies them
in the order of the journal, and only then answers. Two guarantees follow: the coordinator never sees an event that a crash
could lose, and an answer that a client has received never has to be taken back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from turnout.core.checks import CheckpointError, Diverged, count
from turnout.record.lock import FolderGone, create
from turnout_serve.server.journal.checkpoints import Checkpoints, check_progress
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Entry
from turnout_serve.server.journal.events import Event, EventQueue, UnwrittenVisits
from turnout_serve.server.journal.handler import EntryHandler
from turnout_serve.server.options import Options
from turnout_serve.server.run.blame import PieceFailed
from turnout_serve.server.run.figures import snapshot
from turnout_serve.server.store.database import StoreLost, StoreUnavailable
from turnout_serve.server.store.store import Store
from turnout_serve.server.verdicts import Verdict

_IDLE = 1.0  # seconds without events after which the thread looks whether the folder is still there

log = logging.getLogger("turnout.server")


class JournalWriter:
    """Queue of events, and the thread that writes, applies and answers them.

    Args:
        driver: the run, after all entries of the journal.
        last: the last entry of the journal; None where it is empty.
        options: options of the server.
        clock: seconds that the server has run.

    Attributes:
        put: function that queues an event, from any thread; the future that it returns is resolved once the event is
            applied.
        checkpoint: function that saves a checkpoint; where that fails, the reason is in `checkpoints`.
        handler: applies entries and answers their events; to be set before `start` or `run`.
        notify: called with clients whose long polls can be answered, from any thread.
        healthy: False since the last attempt to write the journal, or to look at it, failed.
        failure: the error that ended the server, or None; the next start continues from the journal.
        figures: snapshot after the last group of entries; it is replaced and never changed, so any thread may read it.
        draining: True once the server is about to stop: long polls are answered at once.
        stopping: True once the thread is to end when the queue is empty.
    """

    handler: EntryHandler

    def __init__(self, driver: Driver, last: Entry | None, options: Options, clock: Callable[[], float]) -> None:
        self.driver, self.store, self.clock = driver, driver.store, clock
        self.notify: Callable[[Iterable[int]], None] = lambda _: None
        self.failure: Exception | None = None
        self.healthy, self.draining, self.stopping = True, False, False
        self.figures = snapshot(driver)
        self.checkpoints = Checkpoints(driver, options)
        self.checkpoint = self.checkpoints.save
        self._number = last.number if last else 0
        self._queue = EventQueue()
        self.put = self._queue.put
        self._thread: threading.Thread | None = None
        self._visits = UnwrittenVisits(driver)
        count("max_empty_steps", options.max_empty_steps, least=0)
        self._max_empty_steps = options.max_empty_steps
        self._failures, self._waited = 0, 0.0  # writes in a row that failed, and when the last one was waited for
        self._in_doubt: list[Entry] = []  # of the last attempt to write: the answer of a database may have been lost
        if driver.run is not None:  # empty steps ended an earlier process; this one is a new attempt
            driver.run.empty_steps = 0
        self.store.wait = self.wait

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self.run, name="journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write and answer all events, save a checkpoint, and end the thread."""
        self.draining = self.stopping = True
        self._queue.close()
        if self._thread is not None:
            self._thread.join()
        if self.failure is None:
            try:
                with suppress(StoreUnavailable):
                    self._settle()
                    self._write(self._visits.due())
                self.checkpoint()
            except (FolderGone, StoreLost) as error:
                self.failure = error

    def flush(self) -> bool:
        """Write, apply and answer all events that wait; return whether there were any.

        Raises:
            StoreUnavailable: if the journal cannot be written now; all events stay in the queue.
            StoreLost: if the folder was removed, or another server has the journal.
            Diverged: if the run makes no progress any more.
        """
        self.store.check()
        before, ready = self._number, self._settle()
        batch, settled = self._queue.take(), self._number > before
        if not batch and not self.store.outcomes.unwritten and not settled:
            return False
        try:
            intact = _intact(self.store, batch)
        except OSError as error:  # they cannot be read now, which says nothing of their content
            self.healthy = False
            self._queue.put_back(batch)
            raise StoreUnavailable(f"reports cannot be read: {error}") from error
        admitted = self._admitted(intact)
        if not admitted and not self.store.outcomes.unwritten and not settled:
            return True
        # Deferred visits come first: a step that follows from the other entries may depend on which clients are present.
        ready += self._write([*self._visits.due(), *admitted])
        self.figures = snapshot(self.driver, self.figures)
        if ready or self.driver.over is not None:
            self.notify(ready)
        if self.checkpoints.due:
            self.checkpoint()
        check_progress(self.driver, self._max_empty_steps)
        return True

    def _admitted(self, batch: list[Event]) -> list[Event]:
        """Return the events that are to be written; all others are answered, wait for these, or are deferred visits."""
        used, busy, admitted, others = set[str](), set[int | None](), list[Event](), list[Event]()
        for event in batch:
            # Deferred visits are written before all others, so one must not overtake an earlier event of its client.
            if event.client in busy or not self._visits.defer(event):
                (admitted if self.handler.admit(event, used) else others).append(event)
                busy.add(event.client)
        self._queue.put_back([event for event in others if not event.done.done()])
        return admitted

    def _settle(self) -> list[int]:
        """Apply the last attempt to write if the database has it, although it has not said so; see `_write`."""
        entries = self._in_doubt
        written = bool(entries) and next(self.store.entries(self._number), None) is not None
        self._in_doubt = []
        return self._apply(entries, self._queue.take(len(entries))) if written else []

    def _write(self, events: list[Event]) -> list[int]:
        """Commit events, apply and answer them; return the clients whose long polls can be answered."""
        return self._apply(self._commit(events), events)

    def _apply(self, entries: list[Entry], events: list[Event]) -> list[int]:
        """Apply entries of the journal, and answer their events.

        Raises:
            CheckpointError: if one was applied in part, after which nothing may be written or saved.
        """
        ready: list[int] = []
        self._number += len(entries)
        for entry, event in zip(entries, events, strict=True):
            try:
                ready += self.handler.apply(entry, event).ready
            except StoreUnavailable as error:  # which for the caller means that nothing was written
                raise CheckpointError(f"entry {entry.number} was applied in part: {error}") from error
        return ready

    def _commit(self, events: list[Event]) -> list[Entry]:
        """Write events to the journal and return its entries; where that fails, they go back into the queue."""
        wall, now = time.time(), self.clock()
        entries = [
            Entry(number, now, wall, event.kind, event.client, event.task, event.digest, event.data)
            for number, event in enumerate(events, self._number + 1)
        ]
        try:
            self.store.commit(entries, _uploads(events))
        except StoreUnavailable:
            self.healthy, self._in_doubt = False, entries
            create(self.store.folder)  # raises where it was removed
            self._queue.put_back(events)
            raise
        self._failures, self.healthy = 0, True
        return entries

    def run(self) -> None:
        """Write, apply and answer events until `stop`, or until the server cannot go on: `failure` has the reason then."""
        while True:
            try:
                pause = self.handler.tick()
                busy = self.flush()
                self._failures, self.healthy = 0, True
            except StoreUnavailable as error:
                try:
                    self.wait(error)
                except StoreUnavailable:  # the server is to stop
                    return
                continue
            except Exception as error:
                self._fail(error)
                return
            if self.stopping and not self._queue:
                return
            if not busy:
                self._queue.wait(min(pause, _IDLE))

    def wait(self, error: Exception) -> None:
        """Back off after a write or a read that failed, before the caller tries again.

        The server answers nothing that is not on the disk, and reports the failure in its status and its log.

        Raises:
            StoreUnavailable: if the server is to stop; the next start applies what is in the journal.
        """
        since = self._waited if self._failures else self.clock()
        self._failures += 1
        self.healthy = False
        log.error("the disk or the database failed", extra={"reason": str(error), "attempt": self._failures})
        if self.stopping and self._failures > 3:
            raise StoreUnavailable(f"{self.store.folder} cannot be written: {error}") from error
        time.sleep(min(2.0, 0.05 * 2 ** min(self._failures, 6)))
        self._waited = self.clock()
        self.handler.forgive(self._waited - since)  # before any lease ends: clients were answered with 503

    def _fail(self, error: Exception) -> None:
        """Log and record why the server cannot go on; it still answers requests where only the run has failed."""
        run_failed, lost = isinstance(error, Diverged | PieceFailed), isinstance(error, FolderGone | StoreLost)
        text = "the run has failed" if run_failed else "the server cannot go on"
        text += "" if run_failed or lost else ": start it again, and it will from its journal"
        trace = None if lost or isinstance(error, Diverged) else error
        log.critical(text, exc_info=trace, extra={"reason": str(error)})
        if isinstance(error, Diverged):
            self.checkpoint()
        self.failure, self.draining, self.healthy = error, True, False
        self.stopping = self.stopping or not run_failed
        self.notify(())


def _intact(store: Store, events: list[Event]) -> list[Event]:
    """Answer the reports whose file differs from what was checked; return all other events."""
    damaged = store.files.damaged(_uploads(events))
    for event in events:
        if event.file in damaged:
            log.error("report damaged", extra={"client": event.client, "task": event.task})
            event.file.unlink(missing_ok=True)
            event.answer(Verdict(409, {"reason": "the report was damaged on the server: send it again", "offset": 0}))
    return [event for event in events if event.file not in damaged]


def _uploads(events: list[Event]) -> list[tuple[Any, str]]:
    """Return the files of reports and their digests."""
    return [(event.file, event.digest) for event in events if event.file is not None and event.digest is not None]
