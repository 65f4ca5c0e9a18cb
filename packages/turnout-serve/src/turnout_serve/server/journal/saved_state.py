"""Save the state of a driver as a checkpoint of the run's folder, and restore it."""

from __future__ import annotations

from operator import index
from pathlib import Path
from typing import Any

import torch

from turnout.core.checks import CheckpointError
from turnout.record import checkpoint
from turnout.record.query import save_run
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.run.noise import Noise


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
