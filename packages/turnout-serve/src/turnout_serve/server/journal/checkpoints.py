"""Save checkpoints of a server at intervals, restore them, and stop a run that cannot make progress."""

from __future__ import annotations

import logging
import time
from operator import index
from pathlib import Path
from typing import Any

import torch

from turnout.core.checks import CheckpointError, Diverged, counted
from turnout.record import checkpoint
from turnout.record.lock import FolderGone
from turnout.record.query import save_run
from turnout_serve.server.journal import retention
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.options import Options
from turnout_serve.server.run.noise import Noise
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


def save(driver: Driver) -> None:
    """Save tables and a checkpoint; nothing where the driver keeps no tables.

    Raises:
        CheckpointError: if they cannot be written now.
    """
    run, ledger = driver.run, driver.ledger
    if ledger is None:
        return
    over = None if run is None else run.over
    model_groups, model = driver.setting.trained.saved()
    facts: dict[str, Any] = {
        "model": model,
        "journal": driver.applied,
        "head": driver.store.link(driver.applied),
        "run": driver.store.facts.run,
        "version": driver.version,
        "started": 0 if run is None else run.server.federation.num_clients,
        "noise": vars(driver.budget.noise),
        "over": over,
        "surveys": {**driver.surveys.facts(), "charged": driver.budget.charged},
        "unused": driver.surveys.unused() + ([] if run is None else run.unused()),
        **driver.roster.facts(),
        "ledger": ledger.facts(),
        **({} if run is None else run.facts()),
    }
    groups = {"model": {"params": driver.setting.initial}} if run is None else run.coordinator.state_groups()
    tensors = checkpoint.flatten(groups | model_groups) | {"presence": torch.from_numpy(driver.roster.present())}
    if over is not None:
        ledger.set_clients(driver.roster.num_clients, driver.roster.names)
    save_run(ledger.folder, ledger.history, tensors, facts, finished=over is not None)


def restore(driver: Driver, tensors: dict[str, torch.Tensor], facts: dict[str, Any], folder: Path) -> None:
    """Restore the state of a checkpoint in a new driver, whose tables are restored before.

    Raises:
        CheckpointError: if the checkpoint is of another run.
    """
    if facts.get("run") != driver.store.facts.run:
        raise CheckpointError(
            f"{folder} holds the checkpoint of another run than its journal: restore both from a copy, or delete "
            f"{checkpoint.FILE} and {checkpoint.PREVIOUS} to go on with the run of the journal"
        )
    driver.applied = index(facts["journal"])
    driver.roster.restore(facts)
    for client in tensors["presence"].tolist():
        driver.roster.set_presence(client, True)
    # Before the run, which begins with this noise; surveys after it, for their models are published beside that of the run.
    driver.budget.set_noise(Noise(**{**facts["noise"], "lost": tuple(map(tuple, facts["noise"]["lost"]))}))
    if facts["started"]:
        run = driver.begin(facts["started"])
        run.restore(facts, lambda group: checkpoint.unflatten(tensors, group))
    surveys = facts.get("surveys", {})  # empty in checkpoints of versions without surveys
    driver.surveys.restore(surveys)
    driver.budget.set_charged(surveys.get("charged", 0))
    if driver.run is not None:
        driver.publish()


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
