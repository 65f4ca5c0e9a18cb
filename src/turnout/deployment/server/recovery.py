"""A driver brought to where its journal ends."""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from turnout.core.checks import CheckpointError, counted
from turnout.deployment.server.driver import Driver
from turnout.deployment.server.ledger import Ledger
from turnout.deployment.server.noise import Releases, fresh
from turnout.deployment.server.retention import anchors
from turnout.deployment.server.setting import RunSetting
from turnout.deployment.server.store import Entry, Store, read_json
from turnout.record import checkpoint
from turnout.record.contents import restoring
from turnout.record.describe import differences
from turnout.record.lock import locked

log = logging.getLogger("turnout.server")


@contextmanager
def opened(
    folder: Path, setting: RunSetting, database: str | None = None, objects: str | None = None
) -> Iterator[tuple[Driver, Entry | None]]:
    """Open the folder of a run that nobody else serves; gives the driver behind its journal, and the journal's last entry.

    Args:
        folder: of the run, which is locked meanwhile.
        setting: what is run.
        database, objects: URLs of where the journal and large files are in place of the folder.

    Raises:
        CheckpointError: for a folder that another server uses, or that holds another run.
    """
    with locked(folder), closing(Store(folder, database, objects)) as store:
        store.claim()
        driver = Driver(setting, store, Ledger(folder, setting))
        yield driver, recover(driver, store, folder)


def recover(driver: Driver, store: Store, folder: Path) -> Entry | None:
    """Bring a driver to where the journal ends, from the last checkpoint; return the journal's last entry.

    A checkpoint saves time and nothing else: without a whole one, everything is applied once more.

    Raises:
        CheckpointError: for a folder that holds another run, or a journal that lacks what the checkpoint has.
    """
    described = {**driver.setting.description, "rounds": None}
    recorded = read_json(
        store.fact("experiment", json.dumps(described)) or "{}", f"the description of the run in {folder}"
    )
    if different := list(differences(recorded, described)):
        raise CheckpointError(f"{folder} holds another experiment (there, and here): {'; '.join(different[:5])}")
    releases = None if driver.setting.algorithm.privacy is None else Releases(folder, store.run)
    if releases is not None:
        driver.stepped = lambda at: releases.compare(at.version, at.noise.steps)
    _restore(driver, store, folder)
    last, outcomes = None, []
    # One entry too many is read, so that the last entry is known where the checkpoint has all of them.
    for entry in store.entries(max(0, driver.applied - 1)):
        last = entry
        if entry.number > driver.applied:
            outcomes += driver.apply(entry).outcomes
    if (last.number if last else 0) < driver.applied:
        raise CheckpointError(f"the journal of {folder} is behind its checkpoint: restore both from the same copy")
    if driver.setting.rounds < driver.rounds:
        raise CheckpointError(
            f"rounds: got {driver.setting.rounds}, but the run in {folder} was planned with {driver.rounds} and has taken "
            f"{counted(driver.version, 'step')}: write rounds={driver.rounds} or more. To end it earlier, stop the server"
        )
    planned = {"rounds": driver.setting.rounds} if driver.setting.rounds > driver.rounds else {}
    data = planned if releases is None else planned | _fresh_noise(driver, releases, last, bool(planned))
    if data:
        number, at = (0, 0.0) if last is None else (last.number, last.time)
        last = Entry(number + 1, at, time.time(), "restart", data=data)
        store.commit([last])
        outcomes += driver.apply(last).outcomes
    if releases is not None:  # from now on, every release is noted beside the journal before clients can see it
        noted = releases

        def note(at: Driver) -> None:
            store.until_done(lambda: noted.note(at.version, at.noise, at.surveys.charged))

        note(driver)
        driver.stepped = driver.charged = note
    store.commit([], outcomes=outcomes)
    at_work = {str(task.task): str(client) for client in driver.present() for task in driver.tasks_of(client)}
    store.files.clear_incoming(at_work)
    return last


def _fresh_noise(driver: Driver, releases: Releases, last: Entry | None, goes_on: bool) -> dict[str, Any]:
    """Return a fresh secret for all later releases, and releases that the journal lacks; nothing if the run is over."""
    known, plan = driver.noise.lost, driver.setting.algorithm.privacy
    assert plan is not None
    most = 0 if last is None or plan.answers is None else plan.answers.most
    answers = releases.lost_answers(driver.surveys.charged, most)
    lost = releases.lost(driver.version, known, 0 if last is None else driver.setting.rounds)
    if lost != known:
        number = sum(behind - first for first, behind in lost[len(known) :])
        log.warning("releases that the journal does not know are counted as spent", extra={"releases": number})
    elif not answers and (last is None or (driver.over is not None and not goes_on)):
        return {}
    if answers:
        log.warning("answers that the journal does not know are counted as spent", extra={"answers": answers})
    return {"secret": fresh(), "lost": lost, **({"answers": answers} if answers else {})}


def _restore(driver: Driver, store: Store, folder: Path) -> None:
    """Take over the last whole checkpoint, or else the last anchor, if there is one.

    Raises:
        CheckpointError: where none is whole, and the journal before was deleted.
    """
    damaged = False
    for path in (folder, *(anchor.path for anchor in reversed(anchors(folder, store.begins)))):
        if not checkpoint.exists(path):
            continue
        damaged = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of going back to the one before, which does no harm here
            try:
                tensors, facts = checkpoint.load(path, or_previous=True)
            except CheckpointError as error:
                log.warning("a checkpoint is not whole", extra={"reason": str(error)})
                continue
        if _of_this_journal(facts, store):
            with restoring(path / checkpoint.FILE, "the run"):
                driver.restore(tensors, facts, folder)
            return
        log.warning("a checkpoint is of another copy of the journal", extra={"folder": str(path)})
    if store.begins:
        raise CheckpointError(
            f"the journal of {folder} begins at entry {store.begins:,}, and no checkpoint from there on is whole: restore "
            "the folder from a copy"
        )
    if damaged:
        log.warning("no whole checkpoint: all of the journal is applied")


def _of_this_journal(facts: dict[str, Any], store: Store) -> bool:
    """Return whether a checkpoint has the secret that the journal has, and not one of another copy of it."""
    noise = facts.get("noise", {"secret": None})
    if noise["secret"] is None:
        return True
    entry = next(store.entries(noise["entry"] - 1), None)
    return entry is not None and entry.data.get("secret") == noise["secret"]
