"""Perform the runs of a comparison as jobs of an executor: processes, a Dask or Ray cluster, or SLURM."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle

from turnout.comparison.processes import _context, in_sequence
from turnout.comparison.run import Resources, Run, Update
from turnout.comparison.sharing import WORKERS, Worker
from turnout.core.checks import ConfigurationError, count, refuse
from turnout.core.extras import imported
from turnout.core.signals import Flag

_ATTEMPTS = 3
"""Times that a run is submitted whose jobs are preempted or killed. Each goes on from the checkpoint of the one before."""

_SHORT = {"time": "timeout_min", "cpus": "cpus_per_task", "gpus": "gpus_per_node", "memory": "mem_gb"}
"""Names of options of ``slurm:`` in submitit; all others are those of ``sbatch``."""


def in_executor(worker: Worker, executor: Executor, resources: Resources, folder: Path, stopped: Flag) -> None:
    """Submit the runs of a worker as jobs, a few in each, and submit again those whose jobs were killed or preempted.

    Args:
        worker: whose runs.
        executor: what performs jobs; it must see `folder`.
        resources: threads of each job, and how many runs it has.
        folder: of the comparison.
        stopped: when set, jobs that have not begun are cancelled and others save their runs and end.
    """
    jobs: dict[Future[list[Update]], list[Run]] = {}
    attempts: Counter[Run] = Counter()
    stop = folder / WORKERS / f"stop-{uuid.uuid4().hex[:8]}"
    try:
        while jobs or not worker.is_done:
            # Jobs on other machines hear of Ctrl-C by a file, the one thing that all of them see.
            if stopped.is_set() and not stop.exists():
                worker.leave()
                stop.touch()
                for job in list(jobs):
                    if job.cancel():
                        del jobs[job]
            while runs := worker.several(resources.runs_per_job):
                jobs[executor.submit(_job, cloudpickle.dumps(runs), resources.threads, str(folder), str(stop))] = runs
            for job in wait(list(jobs), timeout=0.5, return_when=FIRST_COMPLETED).done:
                for run, update in zip(jobs[job], _updates(job, jobs[job]), strict=True):
                    # Nobody stopped it, so its job was preempted or killed: it goes on from its checkpoint in another one.
                    again = update.status == "stopped" and not stopped.is_set() and attempts[run] + 1 < _ATTEMPTS
                    attempts[run] += 1
                    worker.tell(run, replace(update, status="elsewhere") if again else _said(update, stopped.is_set()))
                del jobs[job]
            if not jobs:
                stopped.wait(0.2)  # until another worker ends, or dies
            worker.refresh()
    finally:
        with suppress(OSError):
            stop.unlink()


def _updates(job: Future[list[Update]], runs: list[Run]) -> list[Update]:
    """Return how the runs of a job ended; ``"stopped"`` where the job itself failed."""
    try:
        return job.result()
    except BaseException as error:  # whatever an executor says of a job that was killed
        why = f"its job failed ({type(error).__name__}: {str(error).strip() or 'without a word'})"
        return [Update(run.label, run.seed, "stopped", note=why) for run in runs]


def _said(update: Update, asked_to_stop: bool) -> Update:
    """Return the update of a run that is not submitted again: it has failed, unless the user stopped it."""
    if update.status != "stopped" or asked_to_stop:
        return update
    return replace(update, status="failed", note=f"{update.note}, {_ATTEMPTS} times. The same command goes on with it")


def _job(packed: bytes, threads: int, folder: str, stop: str) -> list[Update]:
    """Perform some runs, wherever an executor does it."""
    with Worker(Path(folder), pickle.loads(packed), lambda _: None) as worker:
        in_sequence(worker, threads, _StopFile(Path(stop)))
        return worker.ended


class _StopFile:
    """An event that is set where a file exists, which is looked at once a second."""

    def __init__(self, path: Path) -> None:
        self._path, self._looked, self._set = path, 0.0, False

    def is_set(self) -> bool:
        """Return whether the file exists."""
        if time.monotonic() - self._looked > 1.0:
            self._looked, self._set = time.monotonic(), self._path.exists()
        return self._set

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds."""
        time.sleep(timeout)
        return self.is_set()


@contextmanager
def executor_on(text: str, folder: Path) -> Iterator[tuple[Executor, int]]:
    """Yield the executor that a text names, and how many runs a job of it should have.

    ``processes:4``, ``dask:tcp://scheduler:8786`` (``dask`` alone starts workers here), ``ray:auto``,
    ``slurm:partition=gpu,time=60`` (minutes) with any option of ``sbatch``, or ``submitit-local``, which is SLURM's way of
    working in processes of this machine.

    Args:
        text: as it is written on the command line.
        folder: of the comparison; what jobs of SLURM print goes to a folder below ``folder/.jobs``.

    Raises:
        ConfigurationError: for an unknown executor or options that it does not have, or a package that is missing.
    """
    kind, _, rest = text.partition(":")
    if kind not in _EXECUTORS:
        raise refuse("--on", given=text, needed=f"one of {', '.join(_EXECUTORS)}, such as processes:4")
    with _EXECUTORS[kind](rest, folder) as executor:
        yield executor, 8 if isinstance(executor, _Submitit) else 1


def _processes(rest: str, _: Path) -> Executor:
    """``processes:4``."""
    if not rest.isdigit() or not int(rest):
        raise refuse("--on processes", given=rest, needed="how many processes, such as processes:4")
    return ProcessPoolExecutor(int(rest), mp_context=_context())


@contextmanager
def _dask(rest: str, _: Path) -> Iterator[Executor]:
    """``dask:tcp://scheduler:8786``, or workers of this machine."""
    distributed = imported("distributed", "--on dask", "turnout[dask]")
    with distributed.Client(rest or None) as client, client.get_executor(pure=False, retries=0) as executor:
        yield executor


@contextmanager
def _ray(rest: str, _: Path) -> Iterator[Executor]:
    """``ray:auto``, ``ray:ray://head:10001``, or a Ray that is started here."""
    ray = imported("ray", "--on ray", "turnout[ray]")
    started = not ray.is_initialized()
    if started:
        ray.init(address=rest or None, include_dashboard=False, log_to_driver=False)
    try:
        yield _Ray(ray)
    finally:
        if started:
            ray.shutdown()


class _Ray(Executor):
    """Ray's tasks as an executor, which Ray itself does not offer."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task of one processor, which Ray does not repeat by itself."""
        return self._ray.remote(max_retries=0)(fn).remote(*args, **kwargs).future()


def _slurm(rest: str, folder: Path) -> Executor:
    """``slurm:partition=gpu,time=60``."""
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise refuse("--on slurm", given=item, needed="options such as partition=gpu,time=60,cpus=4,memory=8")
        number = int(value) if value.isdigit() else value
        options[_SHORT.get(key, f"slurm_{key.replace('-', '_')}")] = number
    return _Submitit("slurm", options, folder)


def _local(rest: str, folder: Path) -> Executor:
    """``submitit-local``."""
    if rest:
        raise refuse("--on submitit-local", given=rest, needed="no options")
    return _Submitit("local", {"timeout_min": 60}, folder)


class _Submitit(Executor):
    """submitit's jobs as an executor: a thread looks every second which of them have ended."""

    def __init__(self, cluster: str, options: Mapping[str, Any], folder: Path) -> None:
        submitit = imported("submitit", "--on slurm", "turnout[slurm]")
        try:
            # A new folder each time: results of jobs are pickles, and a folder from elsewhere may hold some of any job.
            jobs = folder.resolve() / ".jobs" / uuid.uuid4().hex[:12]
            self._executor = submitit.AutoExecutor(folder=str(jobs), cluster=cluster)
            self._executor.update_parameters(name="turnout", **options)
        except (RuntimeError, NameError, TypeError, ValueError) as error:
            raise ConfigurationError(f"--on {cluster}: {error}") from error
        self._jobs: list[tuple[Any, Future[Any]]] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a job."""
        future: Future[Any] = Future()
        with self._lock:
            self._jobs.append((self._executor.submit(fn, *args, **kwargs), future))
        return future

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            with self._lock:
                jobs = list(self._jobs)
            ended = [pair for pair in jobs if self._has_ended(*pair)]
            with self._lock:
                self._jobs = [pair for pair in self._jobs if pair not in ended]

    @staticmethod
    def _has_ended(job: Any, future: Future[Any]) -> bool:
        """Settle a future whose job has ended; cancel a job whose future was cancelled."""
        if future.cancelled():
            job.cancel()
            return True
        if not job.done():
            return False
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(job.result())
            except Exception as error:
                future.set_exception(error)
        return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what is left, and stop looking."""
        del wait, cancel_futures
        self._over.set()
        self._thread.join()
        for job, _ in self._jobs:
            job.cancel()


_EXECUTORS: Mapping[str, Callable[[str, Path], Any]] = {
    "processes": _processes,
    "dask": _dask,
    "ray": _ray,
    "slurm": _slurm,
    "submitit-local": _local,
}


def check_jobs(executor: Executor | None, runs_per_job: int) -> None:
    """Refuse what is no executor, and what is no number of runs.

    Raises:
        ConfigurationError: for either.
    """
    count("runs_per_job", runs_per_job)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise refuse("executor", given=executor, needed="a concurrent.futures.Executor, such as ProcessPoolExecutor(4)")
