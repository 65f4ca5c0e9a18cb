"""Compare algorithms over seeds: one run per algorithm and seed, each in its own folder, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from turnout.comparison.display import display
from turnout.comparison.folders import load_record, save_order
from turnout.comparison.jobs import Jobs, perform_in, perform_in_sequence
from turnout.comparison.planned import check_experiments, check_runs, first_of, runs_of
from turnout.comparison.processes import Processes
from turnout.comparison.run import Resources, Run
from turnout.comparison.sharing import Worker
from turnout.comparison.tuning import Tuner
from turnout.comparison.update import Listener, Update
from turnout.core.checks import TurnoutError
from turnout.core.other_names import explains_arguments
from turnout.experiment import Experiment
from turnout.record import outer
from turnout.results.records import RunRecord
from turnout.simulation.running import Interrupted, stops_on_signal


class RunsFailed(TurnoutError):
    """Some runs of a comparison failed.

    Attributes:
        failures: the last update of each failed run.
        done: the records of the other runs.
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
    """A comparison was stopped by the user; its runs are saved, and the same call resumes them."""


@explains_arguments
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
    tune: Tuner | None = None,
    lockstep: int = 1,
) -> list[RunRecord]:
    """Run every experiment with every seed, and return the records ordered by experiment and seed.

    A run is in the folder ``folder/NAME/seed-SEED``. Finished runs are not repeated, and runs that were stopped or killed are
    resumed. The records depend only on the experiments, not on `jobs` and `threads`. Several processes, also on several
    machines that share the folder, may make the same call at the same time: they divide the runs among themselves, and each
    returns when all runs have ended.

    Args:
        experiments: a function of the seed for each name. With several jobs it is sent to other processes with all that it
            refers to; functions of a script or a notebook and lambdas are sent by value.
        seeds: the number of seeds, 0, 1, ..., or the seeds themselves.
        folder: folder for all runs.
        jobs: the number of parallel runs; None is the number of processors divided by `threads`. A single job runs in this
            process.
        threads: number of threads of each run. Parallel runs use processors better than threads do.
        checkpoint_every: rounds between checkpoints; None is about one minute.
        progress: True for progress bars, or a function that is called with each `Update`.
        executor: performs the runs in place of local processes: any `concurrent.futures.Executor` whose workers see
            `folder`, such as that of a Dask client. Runs whose jobs are killed are submitted again, and resume from their
            checkpoints.
        runs_per_job: the number of runs that a job of the executor performs one after another. A larger number saves
            start-ups of a few seconds.
        devices: local GPUs over which jobs are distributed, ``("cuda:0", "cuda:1")``, for experiments with
            ``device="cuda"``; `jobs` is then by default the number of GPUs.
        tune: a `turnout.Tune`, which chooses options of each experiment with the same budget first. Experiments are then
            functions of the seed and of one argument with a default for each axis, ``experiment(seed, lr=0.1)``.
            ``folder/tuned.json`` has the choices and their cost.
        lockstep: the number of runs that a process performs in lock-step. Clients of runs with the same local steps, such as
            seeds of an algorithm, train in one call, which makes runs of small models faster. Records do not depend on it on
            a CPU, and up to rounding on a GPU. It takes the memory of all these runs, and requires ``threads=1``.

    Raises:
        ConfigurationError: if experiments, seeds or jobs cannot be run: every experiment is built with its first seed
            before any is trained.
        RunsFailed: if some runs failed, after all others have ended.
        Stopped: if the user presses Ctrl-C, after checkpoints were saved.
    """
    target = Path(folder).absolute()  # the functions may change the working directory
    runs = runs_of(experiments, seeds, target, checkpoint_every)
    resources = Resources(jobs, threads, executor, runs_per_job, tuple(devices), lockstep)
    check_runs(runs, resources)
    check_experiments(first_of(runs))
    if tune is not None:
        reported = list(dict.fromkeys(run.seed for run in runs))
        tuned = tune.choose(experiments, reported, target, resources, progress)
        chosen = {name: partial(make, **tuned[name].values) for name, make in experiments.items()}
        runs = runs_of(chosen, reported, target, checkpoint_every)
    return list(perform_all(runs, target, resources, progress).values())


def perform_all(
    runs: Sequence[Run],
    folder: Path,
    resources: Resources,
    progress: bool | Listener = False,
    earlier: Sequence[Path] = (),
) -> dict[Run, RunRecord]:
    """Perform runs, all of them below `folder`, in parallel; see `compare` for the arguments.

    Args:
        runs, folder, resources, progress: as in `compare`.
        earlier: folders of earlier runs of the same search, which come first in the order of the folder.

    Returns:
        The record of every run, in the order of `runs`.

    Raises:
        ConfigurationError: if a number of jobs or threads is below 1, or experiments cannot be pickled.
        RunsFailed: if some runs failed, after all others have ended.
        Stopped: if the user presses Ctrl-C, after checkpoints were saved.
        FolderGone: if `folder` was removed or replaced between two runs.
    """
    processes = check_runs(runs, resources)
    save_order(folder, list(dict.fromkeys([*earlier, *(run.folder for run in runs)])))
    # All experiments with the first seeds come first, so that finished runs compare all experiments.
    seeds = list(dict.fromkeys(run.seed for run in runs))
    queue = sorted(runs, key=lambda run: seeds.index(run.seed) // resources.lockstep)
    with (
        outer.watched(folder),
        display(len(runs), progress) as tell,
        Worker(folder, queue, tell) as worker,
        stops_on_signal() as stopped,
    ):
        if resources.executor is not None:
            perform_in(Jobs(resources.executor, resources, folder), worker, stopped)
        elif processes > 1:
            perform_in(Processes(processes, resources), worker, stopped)
        else:
            perform_in_sequence(worker, resources, stopped)
    return _finished(runs, worker, folder)


def _finished(runs: Sequence[Run], worker: Worker, folder: Path) -> dict[Run, RunRecord]:
    """Return the records of all runs; those that the worker has not loaded are read.

    Raises:
        RunsFailed: if some runs failed.
        Stopped: if some runs were stopped.
    """
    updates = {run: worker.ended[run] for run in runs}
    finished = [run for run, update in updates.items() if update.status == "done"]
    done = {run: worker.records.get(run) or load_record(run.folder) for run in finished}
    if failures := [update for update in updates.values() if update.status == "failed"]:
        raise RunsFailed(failures, done)
    if len(done) < len(updates):
        raise Stopped(f"stopped with {len(done)} of {len(updates)} runs finished, all saved in {folder}")
    return done
