"""Make executors of processes, of a Dask or Ray cluster, and of SLURM, from their names on the command line."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnout.comparison.processes import _context
from turnout.core.checks import ConfigurationError, refuse
from turnout.core.extras import imported

_SHORT = {"time": "timeout_min", "cpus": "cpus_per_task", "gpus": "gpus_per_node", "memory": "mem_gb"}
"""Names of options of ``slurm:`` in submitit; all others are those of ``sbatch``."""


@contextmanager
def executor_on(text: str, folder: Path) -> Iterator[tuple[Executor, int]]:
    """Yield the executor that a text names, and the number of runs per job that suits it.

    Texts are ``processes:4``, ``dask:tcp://scheduler:8786`` (``dask`` alone starts local workers), ``ray:auto``,
    ``slurm:partition=gpu,time=60`` (minutes) with any option of ``sbatch``, and ``submitit-local``, which runs the jobs of
    SLURM in local processes.

    Args:
        text: the value of ``--on``.
        folder: folder of the comparison; the output of SLURM's jobs goes to a folder in ``folder/.jobs``.

    Raises:
        ConfigurationError: if an executor or option is unknown, or a package is not installed.
    """
    kind, _, rest = text.partition(":")
    if kind not in _EXECUTORS:
        raise refuse("--on", given=text, needed=f"one of {', '.join(_EXECUTORS)}, such as processes:4")
    with _EXECUTORS[kind](rest, folder) as executor:
        yield executor, 8 if isinstance(executor, _Submitit) else 1


def _processes(rest: str, _: Path) -> Executor:
    """Return an executor of local processes, for ``processes:4``."""
    if not rest.isdigit() or not int(rest):
        raise refuse("--on processes", given=rest, needed="how many processes, such as processes:4")
    return ProcessPoolExecutor(int(rest), mp_context=_context())


@contextmanager
def _dask(rest: str, _: Path) -> Iterator[Executor]:
    """Yield the executor of a Dask cluster, for ``dask:tcp://scheduler:8786``, or of local workers, for ``dask``."""
    distributed = imported("distributed", "--on dask", ".[dask]")
    with distributed.Client(rest or None) as client, client.get_executor(pure=False, retries=0) as executor:
        yield executor


@contextmanager
def _ray(rest: str, _: Path) -> Iterator[Executor]:
    """Yield an executor of Ray tasks, for ``ray:auto``, ``ray:ray://head:10001`` or, with a local cluster, ``ray``."""
    ray = imported("ray", "--on ray", ".[ray]")
    started = not ray.is_initialized()
    if started:
        ray.init(address=rest or None, include_dashboard=False, log_to_driver=False)
    try:
        yield _Ray(ray)
    finally:
        if started:
            ray.shutdown()


class _Ray(Executor):
    """An executor of Ray tasks; Ray itself has none."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task of one processor, without Ray's own retries."""
        return self._ray.remote(max_retries=0)(fn).remote(*args, **kwargs).future()


def _slurm(rest: str, folder: Path) -> Executor:
    """Return an executor of SLURM jobs, for ``slurm:partition=gpu,time=60``."""
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise refuse("--on slurm", given=item, needed="options such as partition=gpu,time=60,cpus=4,memory=8")
        number = int(value) if value.isdigit() else value
        options[_SHORT.get(key, f"slurm_{key.replace('-', '_')}")] = number
    return _Submitit("slurm", options, folder)


def _local(rest: str, folder: Path) -> Executor:
    """Return an executor that runs SLURM's jobs in local processes, for ``submitit-local``."""
    if rest:
        raise refuse("--on submitit-local", given=rest, needed="no options")
    return _Submitit("local", {"timeout_min": 60}, folder)


class _Submitit(Executor):
    """An executor of submitit jobs; a thread checks every second which of them have ended."""

    def __init__(self, cluster: str, options: Mapping[str, Any], folder: Path) -> None:
        submitit = imported("submitit", "--on slurm", ".[slurm]")
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
        """Set the result of a job that has ended; cancel the job of a canceled future. Return whether either was done."""
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
        """Cancel all jobs that have not ended, and stop the thread."""
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
