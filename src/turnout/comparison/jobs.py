"""Perform the runs of a comparison: one after another in this process, in several processes, or as jobs of an executor."""

from __future__ import annotations

import pickle
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import cloudpickle
import torch

from turnout.comparison.processes import Processes
from turnout.comparison.run import Resources, Run, perform
from turnout.comparison.sharing import WORKERS, Worker
from turnout.comparison.update import Update
from turnout.core.signals import Flag
from turnout.record import outer

_ATTEMPTS = 3
"""Times that a run is submitted whose jobs are preempted or killed. Each resumes from the checkpoint of the one before."""


def perform_in(pool: Processes | Jobs, worker: Worker, stopped: Flag) -> None:
    """Perform the runs of a worker in processes or as jobs, until none is left or `stopped` is set."""
    try:
        while pool.is_busy or not worker.is_done:
            if stopped.is_set():
                worker.leave()
                pool.stop()
            while runs := worker.several(pool.room):
                pool.submit(runs)
            if not pool.is_busy:
                stopped.wait(0.2)  # all runs that are left are performed by other workers
            for update in pool.updates():
                worker.tell(update)
            worker.refresh()
    finally:
        pool.close()


def perform_in_sequence(worker: Worker, resources: Resources, stopped: Flag | _StopFile) -> None:
    """Perform the runs of a worker in this process, one after another or several in lock-step."""
    before = torch.get_num_threads()
    torch.set_num_threads(resources.threads)
    try:
        while not worker.is_done and not stopped.is_set():
            if not (runs := worker.several(resources.lockstep)):
                stopped.wait(0.2)  # all runs that are left are performed by other workers
                worker.refresh()
                continue
            for update in perform(runs, worker.tell, stopped.is_set):
                worker.tell(update)
                if update.status == "stopped":
                    worker.leave()
    finally:
        torch.set_num_threads(before)


class Jobs:
    """Jobs of an executor, a few runs in each; runs whose jobs are killed or preempted are submitted again.

    Args:
        executor: performs the jobs; its workers see `folder`.
        resources: threads of each job, and runs per job.
        folder: folder of the comparison.
    """

    def __init__(self, executor: Executor, resources: Resources, folder: Path) -> None:
        self._executor, self._resources = executor, replace(resources, executor=None)
        self.room = max(resources.runs_per_job, resources.lockstep)
        self._folder, self._is_stopped = folder, False
        # Jobs on other machines learn of Ctrl-C from a file, the only thing that all of them see.
        self._stop = folder / WORKERS / f"stop-{uuid.uuid4().hex[:8]}"
        self._jobs: dict[Future[list[Update]], list[Run]] = {}
        self._attempts: Counter[Run] = Counter()

    @property
    def is_busy(self) -> bool:
        """True while a job has not ended."""
        return bool(self._jobs)

    def submit(self, runs: list[Run]) -> None:
        """Submit runs as one job."""
        arguments = cloudpickle.dumps(runs), self._resources, str(self._folder), str(self._stop)
        self._jobs[self._executor.submit(_job, *arguments)] = runs

    def updates(self) -> Iterator[Update]:
        """Yield the last update of each run whose job has ended."""
        for job in wait(list(self._jobs), timeout=0.5, return_when=FIRST_COMPLETED).done:
            runs = self._jobs.pop(job)
            for run, update in zip(runs, _outcomes(job, runs), strict=True):
                self._attempts[run] += 1
                yield self._settled(update, self._attempts[run])

    def stop(self) -> None:
        """Cancel the jobs that have not begun; the others save checkpoints and end."""
        if not self._is_stopped:
            self._is_stopped = True
            self._stop.touch()
            self._jobs = {job: runs for job, runs in self._jobs.items() if not job.cancel()}

    def close(self) -> None:
        """Delete the file that stops jobs."""
        with suppress(OSError):
            self._stop.unlink()

    def _settled(self, update: Update, attempts: int) -> Update:
        """Return the update of a run whose job has ended: a run that was killed is submitted again, or has failed."""
        if update.status != "stopped" or self._is_stopped:
            return update
        if attempts < _ATTEMPTS:
            return replace(update, status="elsewhere")  # which puts it back into the worker's queue
        return replace(update, status="failed", note=f"{update.note}, {attempts} times. The same command resumes it")


def _outcomes(job: Future[list[Update]], runs: list[Run]) -> list[Update]:
    """Return the last updates of the runs of a job; ``"stopped"`` if the job itself failed."""
    try:
        return job.result()
    except BaseException as error:  # executors raise errors of any kind for a job that was killed
        why = f"its job failed ({type(error).__name__}: {str(error).strip() or 'no message'})"
        return [Update(run.label, run.seed, "stopped", note=why) for run in runs]


def _job(packed: bytes, resources: Resources, folder: str, stop: str) -> list[Update]:
    """Perform the runs of a job, in a process of an executor."""
    with outer.watched(Path(folder)), Worker(Path(folder), pickle.loads(packed), lambda _: None) as worker:
        perform_in_sequence(worker, resources, _StopFile(Path(stop)))
        return list(worker.ended.values())


class _StopFile:
    """A `Flag` that is set while a file exists, which is checked once a second."""

    def __init__(self, path: Path) -> None:
        self._path, self._checked, self._is_set = path, 0.0, False

    def is_set(self) -> bool:
        """Return whether the file exists."""
        if time.monotonic() - self._checked > 1.0:
            self._checked, self._is_set = time.monotonic(), self._path.exists()
        return self._is_set

    def wait(self, timeout: float) -> bool:
        """Wait `timeout` seconds."""
        time.sleep(timeout)
        return self.is_set()
