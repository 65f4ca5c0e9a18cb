"""Share the runs of a folder among workers: who is at which run, on this machine or on others that see the folder."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal, NamedTuple

from turnout.comparison.folders import load_record, ordered_names, rounds_of
from turnout.comparison.run import Listener, Run, Update
from turnout.core.checks import CheckpointError
from turnout.core.system import move
from turnout.record import checkpoint, contents, lock
from turnout.reporting.records import RunRecord

WORKERS = ".workers"
"""The folder of the workers' files, below that of a comparison."""

_EVERY = 1.0
"""Seconds between two writings of a worker's file, and between two readings of the others'."""

_SILENT = 60.0
"""Seconds after which a worker whose file was not written again is no longer shown."""


class _Worker(contents.Contents):
    """The file of a worker."""

    host: str
    running: tuple[Update, ...]


class Worker:
    """Take the runs of a comparison that nobody else is at, one after another, and tell everybody what becomes of them.

    A run belongs to whoever holds the lock of its folder, which the system releases when a process ends, however it ends. The
    files of workers are for display alone: nothing depends on them.

    Args:
        folder: of the comparison.
        runs: all of its runs, in the order in which to take them.
        listener: is told the updates of this worker and, every second, those of others.

    Attributes:
        records: of the runs that other workers have finished.
    """

    def __init__(self, folder: Path, runs: Sequence[Run], listener: Listener) -> None:
        self._runs, self._listener = runs, listener
        self._left, self._ended, self._running = deque(runs), dict[Run, Update](), dict[str, Update]()
        self.records: dict[Run, RunRecord] = {}
        self._written = self._read = 0.0
        self._path = folder / WORKERS / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
        self._write()
        # By the clock of the file system, which times the checkpoints of other machines, too.
        self._since = self._path.stat().st_mtime_ns if self._path.exists() else time.time_ns()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._path.unlink()
            self._path.parent.rmdir()

    @property
    def is_done(self) -> bool:
        """True where no run is left to take."""
        return not self._left

    @property
    def ended(self) -> list[Update]:
        """The last update of each run, in the order given."""
        unbegun = "not begun"
        return [self._ended.get(run) or Update(run.label, run.seed, "stopped", note=unbegun) for run in self._runs]

    def leave(self) -> None:
        """Take no more runs."""
        self._left.clear()

    def next(self) -> Run | None:
        """Take the next run that no other process is at or has finished meanwhile; None where there is none now."""
        for run in list(self._left):
            # A hint, not a claim: two workers may both see a free folder. `perform` takes the lock; the one that comes too
            # late reports the run as "elsewhere", which puts it back into the queue (`tell`).
            if lock.in_use(run.folder):
                continue
            self._left.remove(run)
            if (update := self._finished_elsewhere(run)) is None:
                return run
            self.tell(run, update)
        return None

    def several(self, number: int) -> list[Run]:
        """Take so many runs, or as many as there are now."""
        runs: list[Run] = []
        while len(runs) < number and (run := self.next()) is not None:
            runs.append(run)
        return runs

    def tell(self, run: Run, update: Update) -> None:
        """Take in an update of a run of this worker, and pass it on."""
        if update.status in ("started", "running"):
            self._running[str(update)] = update
        else:
            self._running.pop(str(update), None)
            if update.status == "elsewhere":  # it may still fail or be killed there, so it is asked for again later
                self._left.append(run)
            else:
                self._ended[run] = update
        if update.status != "elsewhere":
            self._listener(update)
        self.refresh()

    def refresh(self) -> None:
        """Write what this worker is at, and pass on what the others are at, unless that was done within the last second."""
        now = time.monotonic()
        if now - self._written > _EVERY:
            self._write()
        if now - self._read > _EVERY:
            self._read = now
            for host, update in running(self._path.parent.parent, but=self._path.name):
                self._listener(replace(update, note=f"{update.note} ({host})".strip()))

    def _write(self) -> None:
        self._written = time.monotonic()
        updates = list(map(asdict, self._running.values()))
        content = {"host": socket.gethostname(), "process": os.getpid(), "running": updates}
        part = self._path.with_suffix(".part")
        with suppress(OSError):  # a full disk ends a run by its own error, not by this one
            self._path.parent.mkdir(exist_ok=True)
            part.write_text(json.dumps(content), encoding="utf-8")
            move(part, self._path)

    def _finished_elsewhere(self, run: Run) -> Update | None:
        """Return how a run ended that another process has finished since this worker began; None where none has."""
        try:
            if (run.folder / checkpoint.FILE).stat().st_mtime_ns < self._since:
                return None
            record = load_record(run.folder)
        except (OSError, CheckpointError):  # not finished, or not whole: whoever performs it says so
            return None
        self.records[run], rounds = record, record.config["rounds"]
        return Update(run.label, run.seed, "done", rounds, rounds, "finished by another worker")


class Standing(NamedTuple):
    """Hold how far a run is.

    Attributes:
        name: its folder, below that of the comparison.
        state: ``"finished"``, ``"running"``, ``"stopped"`` or ``"not begun"``.
        done, rounds: recorded rounds, and all of them; 0 of 0 for a run that was not begun.
        where: the machine that it is running on, if a worker says so.
    """

    name: str
    state: Literal["finished", "running", "stopped", "not begun"]
    done: int = 0
    rounds: int = 0
    where: str = ""


def standings(folder: Path) -> list[Standing]:
    """Return how far the runs of a comparison are, in its order.

    Raises:
        DataError: for a folder without runs.
    """
    names = ordered_names(folder)
    workers = {str(update): (host, update) for host, update in running(folder)}
    return [_standing(folder / name, name, workers) for name in names]


def _standing(run: Path, name: str, workers: Mapping[str, tuple[str, Update]]) -> Standing:
    """Return how far one run is."""
    label = f"{Path(name).parent.as_posix()}, {Path(name).name.replace('-', ' ')}"
    host, update = workers.get(label, ("", None))
    if lock.in_use(run):
        return Standing(name, "running", update.done if update else 0, update.rounds if update else 0, host)
    if not checkpoint.exists(run):
        return Standing(name, "not begun")
    done, rounds = checkpoint.version(run) or 0, rounds_of(run)
    try:
        load_record(run)
    except CheckpointError:
        return Standing(name, "stopped", done, rounds)
    return Standing(name, "finished", done, rounds)


def running(folder: Path, but: str = "") -> Iterator[tuple[str, Update]]:
    """Yield the host and the latest update of each run that a worker of a folder is at.

    Args:
        folder: of the comparison.
        but: the name of a worker's file to leave out.
    """
    for path in sorted((folder / WORKERS).glob("*.json")):
        with suppress(OSError, ValueError, CheckpointError):
            if path.name == but or time.time() - path.stat().st_mtime > _SILENT:
                continue
            worker = contents.check(path, _Worker, contents.parse(path.read_bytes()))
            yield from ((worker.host, update) for update in worker.running)
