"""Save checkpoints of a server at intervals, and stop a run that cannot make progress."""

from __future__ import annotations

import logging
import time

from turnout.core.checks import CheckpointError, Diverged, counted
from turnout.record.lock import FolderGone
from turnout_serve.server.journal import retention
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.saved_state import save
from turnout_serve.server.options import Options
from turnout_serve.server.store.database import StoreLost

_MAX_ENTRIES = 20_000  # of the journal that a restart applies, where time has passed but no step was taken

log = logging.getLogger("turnout.server")


class Checkpoints:
    """Save checkpoints, so that the time of a restart does not grow with the run.

    A checkpoint saves time and nothing else: without one, a restart applies the whole journal.

    Args:
        driver: the run.
        options: options of the server: ``checkpoint_every`` and ``keep_reports``.

    Attributes:
        error: reason that the last checkpoint could not be saved; None where it was.
    """

    def __init__(self, driver: Driver, options: Options) -> None:
        self._driver, self._interval, self._kept = driver, options.checkpoint_every, options.keep_reports
        self.error: str | None = None
        self._mark()

    def _mark(self) -> None:
        self._time, self._progress, self._applied = time.monotonic(), self._present, self._driver.applied

    @property
    def _present(self) -> tuple[int, int, bool]:
        """Progress of the run: steps, surveys that have ended, and True once it is over."""
        surveys = self._driver.surveys
        return self._driver.version, surveys.number - len(surveys.open), self._driver.over is not None

    @property
    def due(self) -> bool:
        """True where a checkpoint would save enough time: after a step, at the end, or after many entries."""
        progressed, elapsed = self._present > self._progress, time.monotonic() - self._time >= self._interval
        many = self._driver.applied - self._applied >= _MAX_ENTRIES
        return (progressed and (elapsed or self._driver.over is not None)) or (elapsed and many)

    def save(self) -> None:
        """Save a checkpoint, and delete what later restarts do not need; a failure is logged, and tried again when due.

        Raises:
            FolderGone, StoreLost: if the folder was removed, or another server has the journal.
        """
        try:
            # A restart from the checkpoint does not apply the entries before it again, from which outcomes of tasks follow.
            self._driver.store.commit()
            save(self._driver)
            self.error = None
            if self._kept is not None:
                retention.keep(self._driver, self._kept)
        except (FolderGone, StoreLost):
            raise
        except CheckpointError as error:
            log.error("checkpoint failed", extra={"reason": str(error)})
            self.error = str(error)
        self._mark()


def check_progress(driver: Driver, max_empty_steps: int) -> None:
    """Check that the model is finite, and that steps use reports.

    Raises:
        Diverged: if the model holds NaN or infinity, or too many steps in a row had no usable report; 0 allows any
            number.
    """
    if not driver.publication.finite:
        raise Diverged(f"the model of step {driver.version} holds NaN or infinity: restore a backup from before")
    empty_steps = 0 if driver.run is None else driver.run.empty_steps
    if driver.over is None and 0 < max_empty_steps <= empty_steps:
        dropped = {} if driver.ledger is None else driver.ledger.dropped
        counts = ", ".join(f"{reason} {number:,}" for reason, number in sorted(dropped.items())) or "none"
        raise Diverged(
            f"no report could be used in the last {counted(empty_steps, 'step')}, up to step {driver.version} "
            f"(tasks dropped so far: {counts}): clients diverge, or cannot do their task in time. Start the server "
            "again to go on, restore a backup from before if the model is ruined, or write --max-empty-steps 0"
        )
