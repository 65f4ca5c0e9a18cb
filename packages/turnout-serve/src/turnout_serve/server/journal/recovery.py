"""Recover a driver: restore the last checkpoint, and apply the entries after it."""

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
from turnout.record import checkpoint
from turnout.record.contents import Unreadable, restoring
from turnout.record.describe import differences, without_neutral
from turnout.record.lock import locked
from turnout_serve.server.journal.checkpoints import restore
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Entry, read_json
from turnout_serve.server.journal.retention import anchors
from turnout_serve.server.run.ledger import Ledger
from turnout_serve.server.run.noise import Releases, fresh
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.store.store import Store
from turnout_serve.wire.format import is_finite

_WITHOUT_CHECKPOINT = f"delete it and {checkpoint.PREVIOUS}, and the server restores the same state from its journal"

log = logging.getLogger("turnout.server")


@contextmanager
def opened(
    folder: Path, setting: RunSetting, database: str | None = None, objects: str | None = None, min_clients: int = 1
) -> Iterator[tuple[Driver, Entry | None]]:
    """Open the folder of a run; yield a driver after all entries of the journal, and the last entry.

    Args:
        folder: folder of the run, which is locked meanwhile.
        setting: setting of the run.
        database, objects: URLs of the database and the object store, if not in the folder.
        min_clients: number of clients that must be present when clients are asked to train.

    Raises:
        CheckpointError: if another server uses the folder, or it holds another run.
    """
    with locked(folder), closing(Store(folder, database, objects)) as store:
        store.claim()
        driver = Driver(setting, store, Ledger(folder, setting))
        yield driver, recover(driver, store, folder, min_clients)


def recover(driver: Driver, store: Store, folder: Path, min_clients: int = 1) -> Entry | None:
    """Restore the last checkpoint, and apply all entries after it; return the last entry.

    Without a complete checkpoint, the whole journal is applied, which gives the same state.

    Raises:
        CheckpointError: if a folder holds another run, or a journal lacks entries of the checkpoint.
    """
    _check_experiment(driver.setting, store, folder)
    releases = None if driver.setting.algorithm.privacy is None else Releases(folder, store.facts.run)
    if releases is not None:
        driver.on_step = lambda driver: releases.compare(driver.version, driver.budget.noise.steps)
    _restore(driver, store, folder)
    last = _replay(driver, store)
    if (last.number if last else 0) < driver.applied:
        raise CheckpointError(f"the journal of {folder} is behind its checkpoint: restore both from the same copy")
    if (restart := _restart(driver, releases, last, folder, min_clients)) is not None:
        store.commit([restart])
        store.outcomes.add(driver.apply(restart).outcomes)
        last = restart
    if releases is not None:
        _note_releases(driver, releases)
    store.commit()
    at_work = {str(task.task): str(client) for client in driver.present() for task in driver.tasks.of_client(client)}
    store.files.clear_incoming(at_work)
    return last


def _replay(driver: Driver, store: Store) -> Entry | None:
    """Apply the entries after a checkpoint; return the last entry of the journal."""
    last = None
    # From one entry earlier, so that the last entry is known where the checkpoint contains all of them.
    for entry in store.entries(max(0, driver.applied - 1)):
        last = entry
        if entry.number > driver.applied:
            store.outcomes.add(driver.apply(entry).outcomes)
    return last


def _check_experiment(setting: RunSetting, store: Store, folder: Path) -> None:
    """Check that the journal is of the same experiment, or record the experiment beside a new one.

    Raises:
        CheckpointError: if not, naming the differences.
    """
    described = without_neutral(setting.description)
    first = store.facts.ensure("experiment", json.dumps(described))
    recorded = read_json(first, f"the description of the run in {folder}")
    if different := list(differences(without_neutral(recorded), described)):
        raise CheckpointError(f"{folder} holds another experiment (there, and here): {'; '.join(different[:5])}")


def _restart(
    driver: Driver, releases: Releases | None, last: Entry | None, folder: Path, min_clients: int
) -> Entry | None:
    """Return the entry of a restart: fresh noise, planned rounds, needed clients; None where it would change nothing.

    Raises:
        CheckpointError: if fewer rounds are planned than were taken, or than noise was planned for.
    """
    rounds, done = driver.setting.rounds, driver.version
    if rounds < driver.rounds and (rounds < done or driver.setting.algorithm.privacy is not None):
        needed = f"write rounds={driver.rounds} or more"
        if driver.setting.algorithm.privacy is not None:
            needed += ", because the noise is planned for all of them"
        elif done < driver.rounds:
            needed += f", or rounds={done} to end it now"
        raise CheckpointError(
            f"rounds: got {rounds}, but the run in {folder} was planned with {driver.rounds} and has taken "
            f"{counted(done, 'step')}: {needed}"
        )
    planned = {"rounds": rounds} if rounds != driver.rounds else {}
    data = planned if releases is None else planned | _fresh_noise(driver, releases, last, bool(planned))
    if (run := driver.run) is not None and (planned or (run.over is None and run.min_clients != min_clients)):
        data |= {"min_clients": min_clients}
    if not data:
        return None
    number, at = (0, 0.0) if last is None else (last.number, last.time)
    return Entry(number + 1, at, time.time(), "restart", data=data)


def _note_releases(driver: Driver, releases: Releases) -> None:
    """Write the number of releases beside the journal, now and before clients can see each further one."""

    def note() -> None:
        driver.store.until_done(lambda: releases.note(driver.version, driver.budget.noise, driver.budget.charged))

    note()
    driver.on_step, driver.budget.on_charge = (lambda _: note()), note


def _fresh_noise(driver: Driver, releases: Releases, last: Entry | None, goes_on: bool) -> dict[str, Any]:
    """Return a fresh secret, and the releases that the journal does not know; nothing where the run is over."""
    known, begun = driver.budget.noise.lost, last is not None
    plan = driver.setting.algorithm.privacy
    most = plan.answers.most if plan is not None and plan.answers is not None and begun else 0
    answers = releases.lost_answers(driver.budget.charged, most)
    lost = releases.lost(driver.version, known, driver.setting.rounds if begun else 0)
    if lost != known:
        number = sum(behind - first for first, behind in lost[len(known) :])
        log.warning("releases that the journal does not know are counted as spent", extra={"releases": number})
    elif not answers and (not begun or (driver.over is not None and not goes_on)):
        return {}
    if answers:
        log.warning("answers that the journal does not know are counted as spent", extra={"answers": answers})
    return {"secret": fresh(), "lost": lost, **({"answers": answers} if answers else {})}


def _restore(driver: Driver, store: Store, folder: Path) -> None:
    """Restore the last complete checkpoint, or else the last anchor; do nothing without one.

    Raises:
        CheckpointError: if none is complete, and the journal before it was deleted.
    """
    damaged = False
    for path in (folder, *(anchor.path for anchor in reversed(anchors(folder, store.facts.begins)))):
        if not checkpoint.exists(path):
            continue
        damaged = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # falling back to the one before is harmless
            try:
                tensors, facts = checkpoint.load(path, or_previous=True)
            except CheckpointError as error:
                log.warning("checkpoint damaged", extra={"reason": str(error)})
                continue
        if not all(map(is_finite, checkpoint.unflatten(tensors, "model").values())):
            # Of a damaged file, or of a run that diverged: the journal decides, because it leads to the same NaN then.
            log.warning("checkpoint holds NaN or infinity", extra={"folder": str(path)})
            continue
        remedy = (_WITHOUT_CHECKPOINT,) if path == folder else ()  # nothing comes in the place of an anchor
        with restoring(path / checkpoint.FILE, "the run", *remedy):
            if not _of_this_journal(facts, store):
                log.warning("checkpoint of another copy of the journal", extra={"folder": str(path)})
            elif _restore_tables(driver, facts):
                restore(driver, tensors, facts, folder)
                return
    if store.facts.begins:
        raise CheckpointError(
            f"the journal of {folder} begins at entry {store.facts.begins:,}, and no checkpoint from there on is whole: "
            "restore the folder from a copy"
        )
    if damaged:
        log.warning("no complete checkpoint: the whole journal is applied")


def _restore_tables(driver: Driver, facts: dict[str, Any]) -> bool:
    """Restore the tables of a checkpoint; return False if they are damaged, and the journal has to compute them again.

    Raises:
        Unreadable: if they cannot be read now, which says nothing of their content.
    """
    try:
        if driver.ledger is not None:
            driver.ledger.restore(facts["version"], facts["ledger"])
        return True
    except Unreadable:
        raise
    except CheckpointError as error:
        log.warning("tables damaged", extra={"reason": str(error)})
        return False


def _of_this_journal(facts: dict[str, Any], store: Store) -> bool:
    """Return whether a checkpoint has a secret of the journal, and not of another copy of it."""
    noise = facts.get("noise", {"secret": None})
    if noise["secret"] is None:
        return True
    entry = next(store.entries(noise["entry"] - 1), None)
    return entry is not None and entry.data.get("secret") == noise["secret"]
