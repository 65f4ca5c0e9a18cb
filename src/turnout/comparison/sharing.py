"""Divide the runs of a folder among workers, on this machine or on others that share the folder."""

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
from typing import TYPE_CHECKING, Literal, NamedTuple

from turnout.comparison.folders import has_ended, load_record, ordered_names, rounds_of
from turnout.comparison.update import Listener, Update
from turnout.core.checks import CheckpointError
from turnout.core.display import printable
from turnout.core.system import move
from turnout.record import checkpoint, contents, lock, outer, saved

if TYPE_CHECKING:
    from turnout.comparison.run import Run
    from turnout.results.records import RunRecord

WORKERS = ".workers"
"""The folder of the workers' files, inside the folder of a comparison."""

_EVERY = 1.0
"""Seconds between two writes of a worker's file, and between two reads of those of other workers."""

_SILENT = 60.0
"""Seconds after which a worker whose file has not changed is no longer shown."""


class _Worker(contents.Contents):
    """The file of a worker."""

    host: str
    running: tuple[Update, ...]


class Worker:
    """A queue of the runs of a comparison that other workers share.

    A run belongs to the process that holds the lock of its folder, which the system releases when the process ends in any
    way. The files of workers are only for display; nothing else depends on them.

    Args:
        folder: folder of the comparison.
        runs: all of its runs, in the order of the queue.
        listener: receives the updates of this worker and, every second, those of the others.

    Attributes:
        ended: the last update of each run, in the order of the queue.
        records: records of the runs that other workers have finished.
    """

    def __init__(self, folder: Path, runs: Sequence[Run], listener: Listener) -> None:
        self._runs, self._listener = {str(run): run for run in runs}, listener
        self._left, self._running = deque(runs), dict[str, Update]()
        self.ended = {run: Update(run.label, run.seed, "stopped", note="not begun") for run in runs}
        self.records: dict[Run, RunRecord] = {}
        self._written = self._read = 0.0
        self._path = folder / WORKERS / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
        self._write()
        # The clock of the file system also dates the checkpoints of other machines, whose own clocks may differ.
        self._since = self._path.stat().st_mtime_ns if self._path.exists() else time.time_ns()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._path.unlink()
            self._path.parent.rmdir()

    @property
    def is_done(self) -> bool:
        """True if the queue is empty."""
        return not self._left

    def leave(self) -> None:
        """Clear the queue."""
        self._left.clear()

    def several(self, number: int) -> list[Run]:
        """Take `number` runs that no other process performs or has finished, or fewer if there are not as many now.

        Raises:
            FolderGone: if the folder of the comparison was removed or replaced.
        """
        runs: list[Run] = []
        for run in list(self._left):
            if len(runs) == number:
                break
            outer.check(run.folder)
            # Two workers may both see that a folder is free. `perform` takes the lock; the later one reports the run as
            # "elsewhere", which puts it back into the queue (`tell`).
            if lock.in_use(run.folder):
                continue
            self._left.remove(run)
            if (update := self._finished_elsewhere(run)) is None:
                runs.append(run)
            else:
                self.tell(update)
        return runs

    def tell(self, update: Update) -> None:
        """Process an update of a run of this worker, and pass it to the listener."""
        run = self._runs[str(update)]
        if update.status in ("started", "running"):
            self._running[str(update)] = update
        else:
            self._running.pop(str(update), None)
            if update.status == "elsewhere":  # it may still fail or be killed there
                self._left.append(run)
            else:
                self.ended[run] = update
        if update.status != "elsewhere":
            self._listener(update)
        self.refresh()

    def refresh(self) -> None:
        """Write the state of this worker, and pass the updates of the others to the listener, at most once a second."""
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
        with suppress(OSError, outer.FolderGone):  # then, or on a full disk, the run fails with an error of its own
            outer.check(self._path)
            self._path.parent.mkdir(exist_ok=True)
            part.write_text(json.dumps(content), encoding="utf-8")
            move(part, self._path)

    def _finished_elsewhere(self, run: Run) -> Update | None:
        """Return the last update of a run that another process has finished since this worker began; None otherwise."""
        try:
            if (run.folder / checkpoint.FILE).stat().st_mtime_ns < self._since:
                return None
            record = load_record(run.folder)
        except (OSError, CheckpointError):  # not finished, or damaged, which performing it reports
            return None
        self.records[run], rounds = record, record.config["rounds"]
        return Update(run.label, run.seed, "done", rounds, rounds, "finished by another worker")


class Standing(NamedTuple):
    """The progress of a run.

    Attributes:
        name: its folder, relative to that of the comparison.
        state: ``"finished"``, ``"running"``, ``"stopped"`` or ``"not begun"``.
        done, rounds: recorded and total rounds; both are 0 for a run that has not begun.
        where: the machine on which it runs, if known.
        at_least: True where a server has stopped whose journal may have further rounds than its last checkpoint.
    """

    name: str
    state: Literal["finished", "running", "stopped", "not begun"]
    done: int = 0
    rounds: int = 0
    where: str = ""
    at_least: bool = False


def standings(folder: Path) -> list[Standing]:
    """Return the progress of the runs of a comparison, in its order.

    Raises:
        DataError: if a folder has no runs.
    """
    names = ordered_names(folder)
    workers = {str(update): (host, update) for host, update in running(folder)}
    return [_standing(folder / name, name, workers) for name in names]


def _standing(run: Path, name: str, workers: Mapping[str, tuple[str, Update]]) -> Standing:
    """Return the progress of one run."""
    label = f"{Path(name).parent.as_posix()}, {Path(name).name.replace('-', ' ')}"
    host, update = workers.get(label, ("", None))
    if lock.in_use(run):
        if update is not None:
            return Standing(name, "running", update.done, update.rounds, host)
        return Standing(name, "running", _recorded(run), rounds_of(run), _address(run))
    if not checkpoint.exists(run):
        return Standing(name, "not begun")
    done, rounds = checkpoint.version(run) or 0, rounds_of(run)
    try:
        return Standing(name, "finished" if has_ended(run) else "stopped", done, rounds)
    except CheckpointError:
        return Standing(name, "stopped", done, rounds)


def _recorded(run: Path) -> int:
    """Return the number of rounds that the tables of a run in progress have."""
    try:
        return saved.load(run).log.last
    except (CheckpointError, OSError):  # it is being written
        return checkpoint.version(run) or 0


def _address(run: Path) -> str:
    """Return the last address of the server of a run, which is its public one if it has one; empty without a server."""
    path = run / "address.txt"
    return printable("".join(path.read_text("utf-8", "replace").split()[-1:]), 100) if path.is_file() else ""


def running(folder: Path, but: str = "") -> Iterator[tuple[str, Update]]:
    """Yield the host and the latest update of each run in progress.

    Args:
        folder: folder of the comparison.
        but: the name of a worker's file to skip.
    """
    for path in sorted((folder / WORKERS).glob("*.json")):
        with suppress(OSError, ValueError, CheckpointError):
            if path.name == but or time.time() - path.stat().st_mtime > _SILENT:
                continue
            with contents.open_regular(path) as file:
                worker = contents.check(path, _Worker, contents.parse(file.read()))
            yield from ((worker.host, update) for update in worker.running)
