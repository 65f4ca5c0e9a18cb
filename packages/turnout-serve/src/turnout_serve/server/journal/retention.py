"""Keep the reports of the last steps of a long run, and a checkpoint from which they are replayed.

A checkpoint that is kept for this is an anchor. The journal and the reports before the oldest anchor are deleted, which
bounds the size of the run's folder. A replay from that anchor gives the same model, bit for bit.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

from turnout.core.checks import CheckpointError
from turnout.record import checkpoint, storage
from turnout.record.lock import FolderGone
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.store.database import StoreLost
from turnout_serve.server.store.store import Store

FOLDER = "anchors"
_NAME = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")

log = logging.getLogger("turnout.server")


class Anchor(NamedTuple):
    """A checkpoint that is kept: its folder, the number of the last entry that it contains, and its version."""

    path: Path
    number: int
    version: int


def anchors(folder: Path, begins: int = 0) -> list[Anchor]:
    """Return the anchors of a run's folder, the oldest first.

    Args:
        folder: folder of the run.
        begins: the first entry of the journal that was not deleted; earlier anchors are of no use and left out.
    """
    names = [(path, _NAME.fullmatch(path.name)) for path in (folder / FOLDER).glob("*-*")]
    complete = [Anchor(path, int(name[1]), int(name[2])) for path, name in names if name and checkpoint.exists(path)]
    return sorted((anchor for anchor in complete if anchor.number >= begins), key=lambda anchor: anchor.number)


def keep(driver: Driver, steps: int) -> None:
    """Keep the reports of the last steps: at least `steps`, at most twice as many plus those between two checkpoints.

    Make an anchor of the checkpoint that was just saved, if one is due, and delete what precedes the oldest one. Where
    something cannot be written or deleted now, nothing is lost, and a later call does it.

    Raises:
        FolderGone, StoreLost: if the folder was removed, or another server has the journal.
    """
    try:
        _delete_before(driver.store, _anchored(driver, steps), driver.version - steps)
    except (FolderGone, StoreLost):
        raise
    except (CheckpointError, OSError) as error:
        log.error("retention failed", extra={"reason": str(error)})


def _anchored(driver: Driver, steps: int) -> list[Anchor]:
    """Return the anchors, after making another one if the last is so many steps old."""
    folder = driver.store.folder
    present = anchors(folder, driver.store.facts.begins)
    if not present or driver.version >= present[-1].version + steps:
        path = folder / FOLDER / f"{driver.applied}-{driver.version}"
        storage.save(path, {checkpoint.FILE: partial(_link, folder / checkpoint.FILE)})
        present.append(Anchor(path, driver.applied, driver.version))
    return present


def _delete_before(store: Store, present: list[Anchor], version: int) -> None:
    """Delete what precedes the last anchor of at most this version."""
    old = [anchor for anchor in present if anchor.version <= version]
    if not old or old[-1].number <= store.facts.begins:
        return
    oldest = old[-1]
    # The order makes a crash anywhere harmless: the transaction that deletes entries also records from which one on the
    # journal is whole, and files that are left over are deleted by a later call.
    unused = checkpoint.facts(oldest.path)["unused"]  # reports from before the anchor that a step after it uses
    store.compact(oldest.number)
    store.keep_reports(oldest.number, unused)
    for path in (store.folder / FOLDER).iterdir():
        if path not in {anchor.path for anchor in present if anchor.number >= oldest.number}:
            shutil.rmtree(path, ignore_errors=True)
    log.info("journal truncated", extra={"entry": oldest.number, "step": oldest.version})


def replay_start(folder: Path, store: Store) -> Anchor | None:
    """Return the anchor from which a journal is replayed; None where the journal is complete.

    Raises:
        CheckpointError: if there is no anchor, although entries were deleted.
    """
    if not store.facts.begins:
        return None
    if not (present := anchors(folder, store.facts.begins)):
        raise CheckpointError(
            f"the journal of {folder} begins at entry {store.facts.begins:,}, and {folder / FOLDER} holds no checkpoint from "
            "there: restore it from a copy"
        )
    return present[0]


def _link(source: Path, path: Path) -> None:
    """Hard-link a file, or copy it where the file system has no hard links."""
    path.unlink(missing_ok=True)
    try:
        os.link(source, path)
    except OSError:
        shutil.copyfile(source, path)
