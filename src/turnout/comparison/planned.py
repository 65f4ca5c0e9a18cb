"""Plan the runs of experiments with several seeds, and check that they can be performed and will record a metric."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import cloudpickle

from turnout.comparison.folders import check_name, run_folder
from turnout.comparison.run import Resources, Run
from turnout.core.checks import ConfigurationError, TurnoutError, check_seed, count, known_name, refuse
from turnout.core.device import check_gpus
from turnout.core.system import check_path
from turnout.engine.hardware import num_processors
from turnout.experiment import Experiment
from turnout.record.schema import APPEAL_COLUMNS, CHOOSING, COSTS, JUDGED, ROUND_COLUMNS
from turnout.simulation.simulation import Simulation

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


LOG = logging.getLogger(__name__)

_FEW = 32
"""The number of evaluation examples with which the names of recorded metrics are determined."""

_EVALUATIONS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
_OF_GRADIENTS = ("squared_shared_gradient_norm", "squared_gradient_norm", "squared_personal_gradient_norm")
_OF_APPEAL = ("pool", *(kind + column for kind in JUDGED for column in APPEAL_COLUMNS))
_OF_TIME = ("simulated_seconds", "staleness_mean", "staleness_max", "num_unused")


def check_experiments(
    makes: Mapping[str, Callable[[], Experiment]], metric: str | None = None, target: bool = False
) -> None:
    """Build every experiment and try its model on a minibatch.

    A warning names experiments that are tested on other examples than the rest.

    Args:
        makes: a function that makes each experiment, by name.
        metric: a column that all have to record, or a cost of `schema.COSTS`.
        target: require that all record the same accuracy, for a target.

    Raises:
        ConfigurationError: if an experiment cannot run or will not record the metric, with its name.
    """
    columns: dict[str, frozenset[str]] = {}
    personal: dict[bool, list[str]] = {True: [], False: []}
    for name, make in makes.items():
        try:
            experiment = make()
            if not isinstance(experiment, Experiment):
                raise ConfigurationError(f"got {experiment!r}, needed an Experiment")
            Simulation(experiment)
            if experiment.data.test is not None and experiment.data.client_test is not None:
                personal[experiment.algorithm.personal is not None].append(name)
            if metric is not None or target:
                columns[name] = columns_of(experiment)
            if metric is not None:
                _check_metric(metric, columns[name])
        except TurnoutError as error:
            raise type(error)(f"{name}: {error}") from error
    if target:
        _check_target(columns)
    if personal[True] and personal[False]:
        LOG.warning(
            "%s: tested on the clients' own test examples, and %s on the pooled test, so their test_loss and test_accuracy "
            "are of different examples: split with test_fraction=0.0, and official_test='pool' if there is an official test",
            ", ".join(personal[True]),
            ", ".join(personal[False]),
        )


def columns_of(experiment: Experiment) -> frozenset[str]:
    """Predict the columns of an experiment's table of rounds."""
    tried = Simulation(replace(experiment, evaluation_examples=_FEW, appeal=None, gradients=None))
    columns = set(ROUND_COLUMNS) - set(_EVALUATIONS) | set(tried.evaluate()) | {"server_bytes"}
    # With few examples a metric may have no value, such as AUC of a single class.
    splits = [name.removesuffix("_loss") for name in columns if name.endswith("_loss") and "weighted" not in name]
    columns |= {f"{split}_{metric}" for metric in experiment.named_metrics() for split in splits}
    judged = experiment.appeal is not None or experiment.population.opting is not None
    further = {
        _OF_TIME: experiment.population.speed is not None,
        _OF_APPEAL: judged,
        _OF_GRADIENTS: experiment.gradients is not None,
    }
    columns.update(*(names for names, recorded in further.items() if recorded))
    return frozenset(columns)


def _check_metric(metric: str, columns: Iterable[str]) -> None:
    if metric in COSTS or metric == "rounds":
        needed = COSTS.get(metric, ())
        if needed and not set(needed) & set(columns):
            raise ConfigurationError(f"{metric} will not be recorded: needed clients with a speed")
        return
    known_name("column", metric, columns)


def _check_target(columns: Mapping[str, frozenset[str]]) -> None:
    """Raise an error unless all experiments record the same accuracy."""
    for accuracy in CHOOSING:
        recording = [name for name, recorded in columns.items() if accuracy in recorded]
        if len(recording) == len(columns):
            return
        if recording:
            without = next(name for name in columns if name not in recording)
            raise ConfigurationError(
                f"to_accuracy: {recording[0]} will record {accuracy}, and {without} will not: give all the same tests"
            )
    raise ConfigurationError("to_accuracy: no accuracy will be recorded, as targets are no labels")
