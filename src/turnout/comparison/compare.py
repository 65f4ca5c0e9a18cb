"""Compare algorithms over seeds: one run for each pair, each in a folder of its own, side by side."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from pathlib import Path

from turnout.comparison.checks import check_experiments
from turnout.comparison.display import display
from turnout.comparison.executors import check_jobs, in_executor
from turnout.comparison.folders import load_record, run_folder, save_order
from turnout.comparison.processes import in_processes, in_sequence, packed
from turnout.comparison.run import Listener, Resources, Run, Update
from turnout.comparison.sharing import Worker
from turnout.core.checks import ConfigurationError, TurnoutError, check_seed, count, refuse
from turnout.core.device import check_gpus
from turnout.engine.hardware import num_processors
from turnout.experiment import Experiment
from turnout.reporting.records import RunRecord
from turnout.simulation.running import Interrupted, stops_on_signal

MOST_SEEDS = 10_000
"""The largest number of seeds; more are taken for a mistake."""


class RunsFailed(TurnoutError):
    """The error where runs of a comparison failed.

    Attributes:
        failures: the last update of each of them.
        done: the records of the runs that did not fail.
    """

    def __init__(self, failures: Sequence[Update], done: Mapping[Run, RunRecord]) -> None:
        self.failures, self.done = failures, done
        runs = f"{len(failures)} run{'s' * (len(failures) > 1)} failed"
        super().__init__("\n".join([f"{runs}:", *(f"  {failure}: {failure.note}" for failure in failures)]))

    @property
    def records(self) -> list[RunRecord]:
        """The records of the runs that did not fail, in the order of the runs."""
        return list(self.done.values())


class Stopped(Interrupted):
    """A comparison was stopped by the user; its runs are saved, and the same call goes on with them."""


def compare(
    experiments: Mapping[str, Callable[[int], Experiment]],
    seeds: int | Iterable[int],
    folder: str | Path,
    *,
    jobs: int | None = None,
    threads: int = 1,
    checkpoint_every: int | None = None,
    progress: bool | Listener = False,
    executor: Executor | None = None,
    runs_per_job: int = 1,
    devices: Sequence[str] = (),
) -> list[RunRecord]:
    """Run every experiment with every seed, and return their records, by experiment and seed in the order given.

    A run is in the folder ``folder/NAME/seed-SEED``. Runs that are finished there are not repeated, and runs that were
    stopped or killed go on. The records depend on the experiments alone, not on `jobs` and `threads`. Several processes, also
    on several machines that see the folder, may make the same call at the same time: they share the runs, and each returns
    when all runs have ended.

    Args:
        experiments: what to compare: a function of the seed for each name. With several jobs it is sent to other
            processes with all that it refers to; functions of a script or a notebook, lambdas too, go as they are.
        seeds: so many, from 0, or which.
        folder: where all of it goes.
        jobs: how many runs at a time; None means one for each processor, or for so many as a run has threads. One job
            runs in this process.
        threads: of each run. Runs side by side make better use of processors than threads do.
        checkpoint_every: rounds between checkpoints; None means about once a minute.
        progress: True for bars, or a function that is called with each `Update`.
        executor: performs the runs in place of processes of this machine: any `concurrent.futures.Executor` whose workers
            see `folder`, such as that of a Dask client. Runs whose jobs are killed are submitted again, and go on from their
            checkpoints.
        runs_per_job: how many runs a job of the executor performs one after another. More save start-ups of a few seconds.
        devices: GPUs of this machine that jobs share in turns, ``("cuda:0", "cuda:1")``, for experiments with
            ``device="cuda"``. There are as many jobs as GPUs then, unless `jobs` says otherwise.

    Raises:
        ConfigurationError: for experiments, seeds or jobs that cannot be run: every experiment is built with its first seed
            before any is trained.
        RunsFailed: where some runs failed, after all others have ended.
        Stopped: on Ctrl-C, after checkpoints were saved.
    """
    target = Path(folder).absolute()  # the functions may change the working directory
    runs = runs_of(experiments, seeds, target, checkpoint_every)
    resources = Resources(jobs, threads, executor, runs_per_job, tuple(devices))
    check_runs(runs, resources)
    check_experiments(first_of(runs))
    return list(perform_all(runs, target, resources, progress).values())


def perform_all(
    runs: Sequence[Run], folder: Path, resources: Resources, progress: bool | Listener = False
) -> dict[Run, RunRecord]:
    """Perform runs, all of them below `folder`, side by side; see `compare` for the rest.

    Returns:
        The record of every run, in the order given.

    Raises:
        ConfigurationError: for jobs or threads that are no number of them, or experiments that cannot be sent.
        RunsFailed: where some runs failed, after all others have ended.
        Stopped: on Ctrl-C, after checkpoints were saved.
    """
    processes = check_runs(runs, resources)
    save_order(folder, [run.folder for run in runs])
    # Seed after seed, so that whatever is finished compares all experiments.
    seeds = list(dict.fromkeys(run.seed for run in runs))
    turns = sorted(runs, key=lambda run: seeds.index(run.seed))
    with display(len(runs), progress) as tell, Worker(folder, turns, tell) as worker, stops_on_signal() as stopped:
        if resources.executor is not None:
            in_executor(worker, resources.executor, resources, folder, stopped)
        elif processes > 1:
            in_processes(worker, processes, resources.threads, stopped, resources.devices)
        else:
            in_sequence(worker, resources.threads, stopped)
        ended, records = worker.ended, worker.records
    finished = {run for run, end in zip(turns, ended, strict=True) if end.status == "done"}
    done = {run: records[run] if run in records else load_record(run.folder) for run in runs if run in finished}
    if failures := [end for end in ended if end.status == "failed"]:
        raise RunsFailed(failures, done)
    if len(done) < len(runs):
        raise Stopped(f"stopped with {len(done)} of {len(runs)} runs finished, all saved in {folder}")
    return done


def check_runs(runs: Sequence[Run], resources: Resources) -> int:
    """Return how many processes of this machine perform runs, and refuse what could not be sent to them.

    Raises:
        ConfigurationError: for jobs or threads that are no number of them, devices that are no GPUs of this machine, or
            experiments that cannot be sent.
    """
    count("threads", resources.threads)
    check_jobs(resources.executor, resources.runs_per_job)
    check_gpus(resources.devices)
    default = len(resources.devices) or max(1, num_processors() // resources.threads)
    processes = min(default if resources.jobs is None else resources.jobs, len(runs))
    count("jobs", processes)
    if processes > 1 or resources.executor is not None:
        _check_can_be_sent(runs)
    return processes


def first_of(runs: Sequence[Run]) -> dict[str, Callable[[], Experiment]]:
    """Return what makes the first experiment of each name."""
    firsts = {run.label: run for run in reversed(runs)}
    return {name: partial(firsts[name].make, firsts[name].seed) for name in dict.fromkeys(run.label for run in runs)}


def runs_of(
    experiments: Mapping[str, Callable[[int], Experiment]],
    seeds: int | Iterable[int],
    folder: Path,
    checkpoint_every: int | None,
    group: str = "",
) -> list[Run]:
    """Return all runs, by experiment and seed, in the folders ``NAME/seed-SEED``."""
    if isinstance(seeds, int):
        count("seeds", seeds)
    numbers = list(islice(range(seeds) if isinstance(seeds, int) else seeds, MOST_SEEDS + 1))
    if len(numbers) > MOST_SEEDS:
        raise refuse("seeds", given=seeds, needed=f"at most {MOST_SEEDS:,}")
    for seed in numbers:
        check_seed(seed)
    if not numbers or len(set(numbers)) < len(numbers):
        raise refuse("seeds", given=numbers, needed="at least one seed, each once")
    if not experiments:
        raise ConfigurationError("there is nothing to compare: give at least one experiment")
    for name, make in experiments.items():
        if not callable(make):
            raise refuse(
                f"experiments[{name!r}]",
                given=make,
                needed="a function of the seed that makes an experiment",
                instead="Write lambda seed: replace(experiment, seed=seed)",
            )
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            raise refuse("name", given=name, needed="letters, digits, '_', '-' and '.', a letter or digit first")
    return [
        Run(name, seed, make, run_folder(folder, name, seed), checkpoint_every, group)
        for name, make in experiments.items()
        for seed in numbers
    ]


def _check_can_be_sent(runs: Iterable[Run]) -> None:
    """Refuse what another process could not be given."""
    for name, run in {run.label: run for run in runs}.items():
        try:
            packed(run)
        except Exception as error:
            raise ConfigurationError(
                f"{name}: {run.make!r} cannot be sent to another process ({error}): make what it needs inside of it, or "
                "write jobs=1"
            ) from error
