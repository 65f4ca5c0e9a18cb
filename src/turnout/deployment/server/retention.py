"""Keep the reports of the last steps of a long run, and a checkpoint from which they are replayed.

A checkpoint that is kept for this is an anchor. The journal and the reports before the oldest anchor are deleted, so the disk
does not fill up, and a replay from that anchor leads to the same model, bit for bit.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

from turnout.core.checks import CheckpointError, count
from turnout.deployment.server.driver import Driver
from turnout.deployment.server.store import Store
from turnout.record import checkpoint, storage

FOLDER = "anchors"
_NAME = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")

log = logging.getLogger("turnout.server")


class Anchor(NamedTuple):
    """A checkpoint that is kept: its folder, the last entry of the journal that is in it, and its version."""

    path: Path
    number: int
    version: int


def anchors(folder: Path, begins: int = 0) -> list[Anchor]:
    """Return the anchors of a run's folder, the oldest first.

    Args:
        folder: of the run.
        begins: the first entry of the journal that was not deleted; from an anchor before it, nothing goes on.
    """
    names = [(path, _NAME.fullmatch(path.name)) for path in (folder / FOLDER).glob("*-*")]
    whole = [Anchor(path, int(name[1]), int(name[2])) for path, name in names if name and checkpoint.exists(path)]
    return sorted((anchor for anchor in whole if anchor.number >= begins), key=lambda anchor: anchor.number)


class Retention:
    """Keep the reports of so many steps at least, and of twice as many at most but for those between two checkpoints.

    Args:
        store: the journal and reports.
        steps: server steps whose reports are kept; None keeps all, and makes no anchors.

    Raises:
        ConfigurationError: for a number of steps below 1.
    """

    def __init__(self, store: Store, steps: int | None) -> None:
        if steps is not None:
            count("keep_reports", steps)
        self._store, self._steps = store, steps

    def saved(self, driver: Driver) -> None:
        """Make an anchor of the checkpoint that was just saved, if it is time, and delete what lies before the oldest one.

        A process may end anywhere in between: the transaction that deletes entries notes from which one on the journal is
        whole, and what is left of files is deleted by a later call.

        Raises:
            CheckpointError: where something cannot be written now; nothing is lost then.
        """
        if self._steps is None:
            return
        folder = self._store.folder
        held = anchors(folder, self._store.begins)
        if not held or driver.version >= held[-1].version + self._steps:
            path = folder / FOLDER / f"{driver.applied}-{driver.version}"
            storage.save(path, {checkpoint.FILE: partial(_link, folder / checkpoint.FILE)})
            held.append(Anchor(path, driver.applied, driver.version))
        enough = [anchor for anchor in held if anchor.version <= driver.version - self._steps]
        if enough and enough[-1].number > self._store.begins:
            oldest = enough[-1]
            # Reports that came before the anchor and are used behind it, which the journal behind it does not name.
            unused = checkpoint.facts(oldest.path)["unused"]
            self._store.compact(oldest.number)
            self._store.keep_reports(oldest.number, unused)
            for path in (folder / FOLDER).iterdir():
                if path not in {anchor.path for anchor in held if anchor.number >= oldest.number}:
                    shutil.rmtree(path, ignore_errors=True)
            log.info("journal begins", extra={"entry": oldest.number, "step": oldest.version})


def whole_from(folder: Path, store: Store) -> Anchor | None:
    """Return the anchor from which a journal is replayed; None for one that is whole.

    Raises:
        CheckpointError: where there is none, although the journal is not whole.
    """
    if not store.begins:
        return None
    if not (held := anchors(folder, store.begins)):
        raise CheckpointError(
            f"the journal of {folder} begins at entry {store.begins:,}, and {folder / FOLDER} holds no checkpoint from "
            "there: restore it from a copy"
        )
    return held[0]


def _link(source: Path, path: Path) -> None:
    """Have a file under a second name, or a copy where the disk knows no second names."""
    path.unlink(missing_ok=True)
    try:
        os.link(source, path)
    except OSError:
        shutil.copyfile(source, path)
