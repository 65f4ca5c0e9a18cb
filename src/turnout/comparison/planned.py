"""Plan the runs of experiments with several seeds, and check that they can be performed."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import cloudpickle

from turnout.comparison.folders import check_name, run_folder
from turnout.comparison.run import Resources, Run
from turnout.core.checks import ConfigurationError, check_seed, count, refuse
from turnout.core.device import check_gpus
from turnout.core.system import check_path
from turnout.engine.hardware import num_processors
from turnout.experiment import Experiment

MOST_SEEDS = 10_000
"""The largest number of seeds; a larger one is an error."""


def check_runs(runs: Sequence[Run], resources: Resources) -> int:
    """Return the number of local processes that perform runs, and check that runs can be sent to them.

    Raises:
        ConfigurationError: if a number of jobs or threads is below 1, an executor has no ``submit``, devices are not GPUs
            of this machine, or experiments cannot be pickled.
    """
    count("threads", resources.threads)
    count("lockstep", resources.lockstep)
    if resources.lockstep > 1 and resources.threads > 1:
        raise ConfigurationError(
            f"lockstep: got {resources.lockstep} with threads={resources.threads}, needed threads=1: use processors by "
            "jobs"
        )
    count("runs_per_job", resources.runs_per_job)
    if (executor := resources.executor) is not None and not callable(getattr(executor, "submit", None)):
        raise refuse("executor", given=executor, needed="a concurrent.futures.Executor, such as ProcessPoolExecutor(4)")
    check_gpus(resources.devices)
    default = len(resources.devices) or max(1, num_processors() // resources.threads)
    processes = min(default if resources.jobs is None else resources.jobs, -(-len(runs) // resources.lockstep))
    count("jobs", processes)
    if processes > 1 or resources.executor is not None:
        _check_can_be_sent(runs)
    return processes


def first_of(runs: Sequence[Run]) -> dict[str, Callable[[], Experiment]]:
    """Return a function for each name that makes its experiment with the first seed."""
    firsts = {run.label: run for run in reversed(runs)}
    return {name: partial(firsts[name].make, firsts[name].seed) for name in dict.fromkeys(run.label for run in runs)}


def runs_of(
    experiments: Mapping[str, Callable[[int], Experiment]],
    seeds: int | Iterable[int],
    folder: Path,
    checkpoint_every: int | None,
    group: str = "",
) -> list[Run]:
    """Return all runs, by experiment and seed, in the folders ``NAME/seed-SEED``.

    Raises:
        ConfigurationError: if seeds, names or experiments cannot be run.
    """
    numbers = numbers_of(seeds)
    if not isinstance(experiments, Mapping) or not experiments:
        needed = "a function of the seed for each name, such as {'fedavg': lambda seed: Experiment(...)}"
        raise refuse("experiments", given=experiments, needed=needed)
    for name, make in experiments.items():
        if not callable(make):
            raise refuse(
                f"experiments[{name!r}]",
                given=make,
                needed="a function of the seed that makes an experiment",
                instead="Write lambda seed: replace(experiment, seed=seed)",
            )
        check_name(name)
        check_path(run_folder(folder, name, numbers[0]))
    _check_folders(experiments)
    return [
        Run(name, seed, make, run_folder(folder, name, seed), checkpoint_every, group)
        for name, make in experiments.items()
        for seed in numbers
    ]


def _check_folders(names: Iterable[str]) -> None:
    """Raise an error if two names are one folder where file systems ignore case or the encoding of characters (macOS)."""
    known = dict[str, str]()
    for name in names:
        other = known.setdefault(unicodedata.normalize("NFKC", name).casefold().rstrip("."), name)
        if other != name:
            raise ConfigurationError(
                f"names: {other!a} and {name!a} are one folder on file systems that ignore case: rename one of them"
            )


def numbers_of(seeds: int | Iterable[int]) -> list[int]:
    """Return the seeds, from their number or from themselves."""
    if isinstance(seeds, int):
        count("seeds", seeds)
    numbers = list(islice(range(seeds) if isinstance(seeds, int) else seeds, MOST_SEEDS + 1))
    if len(numbers) > MOST_SEEDS:
        raise refuse("seeds", given=seeds, needed=f"at most {MOST_SEEDS:,}")
    for seed in numbers:
        check_seed(seed)
    if not numbers or len(set(numbers)) < len(numbers):
        raise refuse("seeds", given=numbers, needed="at least one seed, each once")
    return numbers


def _check_can_be_sent(runs: Iterable[Run]) -> None:
    """Raise an error for an experiment that cannot be pickled for another process."""
    for name, run in {run.label: run for run in runs}.items():
        try:
            cloudpickle.dumps(run)
        except Exception as error:
            raise ConfigurationError(
                f"{name}: {run.make!r} cannot be sent to another process ({error}): make what it needs inside of it, or "
                "write jobs=1"
            ) from error
