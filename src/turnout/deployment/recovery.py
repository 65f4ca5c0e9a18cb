"""A driver brought to where its journal ends."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path

from turnout import checkpoint
from turnout.core.checks import CheckpointError
from turnout.deployment.driver import Driver
from turnout.deployment.store import Entry, Store
from turnout.describe import differences

log = logging.getLogger("turnout.server")


def recover(driver: Driver, store: Store, folder: Path) -> Entry | None:
    """Bring a driver to where the journal ends, from the last checkpoint; return the journal's last entry.

    A checkpoint saves time and nothing else: without a whole one, everything is applied once more.

    Raises:
        CheckpointError: for a folder that holds another run, or a journal that lacks what the checkpoint has.
    """
    described = json.dumps({**driver.setting.description, "rounds": None})
    there = json.loads(store.fact("experiment", described) or "{}")
    if different := list(differences(there, json.loads(described))):
        raise CheckpointError(f"{folder} holds another experiment (there, and here): {'; '.join(different[:5])}")
    _restore(driver, folder)
    last, outcomes = None, []
    for entry in store.entries(max(0, driver.applied - 1)):
        last = entry
        if entry.number > driver.applied:
            outcomes += driver.apply(entry).outcomes
    if (last.number if last else 0) < driver.applied:
        raise CheckpointError(f"the journal of {folder} is behind its checkpoint: restore both from the same copy")
    store.commit([], outcomes=outcomes)
    held = {str(held.task) for held in map(driver.task_of, driver.present()) if held is not None}
    for part in store.incoming.iterdir():
        if held.isdisjoint(part.name.split("-")[1:2]):
            part.unlink()
    return last


def _restore(driver: Driver, folder: Path) -> None:
    """Take over the last whole checkpoint, if there is one."""
    if not checkpoint.exists(folder):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of going back to the one before, which does no harm here
        try:
            tensors, facts = checkpoint.load(folder, or_previous=True)
        except CheckpointError as error:
            log.warning("no whole checkpoint: all of the journal is applied", extra={"reason": str(error)})
        else:
            driver.restore(tensors, facts, folder)
