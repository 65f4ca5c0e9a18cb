"""Run every combination of a grid, or those that a search proposes, with several seeds, and rank them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from turnout.comparison.compare import perform_all
from turnout.comparison.planned import check_experiments, check_runs, first_of, runs_of
from turnout.comparison.run import Resources, Run
from turnout.comparison.search import search
from turnout.comparison.study import Sampler, Study, corners, space_of
from turnout.comparison.update import Listener
from turnout.core.checks import ConfigurationError, TurnoutError, count, refuse
from turnout.experiment import Experiment
from turnout.results.grid import Sweep, by_name
from turnout.results.measure import Measure, check_accuracy
from turnout.results.range import Range
from turnout.results.records import RunRecord, by_algorithm

Grid = Mapping[str, Sequence[Any] | Range]
"""The values of each axis, by name; for a search, also ranges."""


def sweep(
    experiment: Callable[..., Experiment],
    grid: Grid,
    seeds: int | Iterable[int],
    folder: str | Path,
    *,
    metric: str | None = None,
    to_accuracy: float | None = None,
    trials: int | None = None,
    sampler: Sampler = "tpe",
    sampler_seed: int = 0,
    trials_at_once: int = 4,
    jobs: int | None = None,
    threads: int = 1,
    checkpoint_every: int | None = None,
    progress: bool | Listener = False,
    executor: Executor | None = None,
    runs_per_job: int = 1,
    devices: Sequence[str] = (),
    lockstep: int = 1,
) -> Sweep:
    """Run ``experiment(seed, **values)`` for combinations of values and every seed, and rank the combinations.

    All combinations are run or, with `trials`, those that Optuna proposes (`Search`).

    Runs are in folders ``folder/POINT/seed-SEED``, in parallel, and resume there like those of `compare`::

        def experiment(seed, lr, mu):
            return Experiment(..., algorithm=folb(Sgd(lr=lr), also=(Prox(mu),)), seed=seed)

        result = sweep(experiment, {"lr": [0.01, 0.1], "mu": [0.001, 0.1]}, seeds=3, folder="runs/lr-mu")
        result.best  # {"lr": 0.1, "mu": 0.001}
        sweep(experiment, {"lr": Range(0.001, 1.0, log=True), "mu": [0.001, 0.1]}, 3, "runs/search", trials=30)

    Args:
        experiment: a function of the seed and of one argument for each axis.
        grid: the values of each axis; with `trials`, also a `Range`.
        seeds: the number of seeds, 0, 1, ..., or the seeds themselves.
        folder: folder for all runs.
        metric: the objective: a recorded column, averaged over the last tenth of the rounds, or any `Measure` such as
            ``"average train_loss"``. The default is the validation accuracy; for data without validation examples the test
            accuracy; with `to_accuracy` the rounds until it is reached. Points are ranked by the mean over seeds, or by the
            median of the cost until `to_accuracy`. A test accuracy by which settings are chosen is biased: write
            ``validation_fraction=0.1`` in `split`.
        to_accuracy: the target, for an objective that counts rounds, bytes or simulated seconds until it is reached.
        trials: the number of combinations to try; None tries all. They are stored in ``folder/study.db``, where the same call
            resumes, also with more trials.
        sampler: ``"tpe"``, the tree-structured Parzen estimator, which learns from earlier trials, or ``"random"``.
        sampler_seed: seed of the sampler.
        trials_at_once: the number of trials that are proposed together and run in parallel. The proposals depend on it, not
            on `jobs`.
        jobs, threads, checkpoint_every, progress, executor, runs_per_job, devices, lockstep: as in `compare`.

    Raises:
        ConfigurationError: if the grid, metric, seeds or jobs cannot be run.
        RunsFailed: if some runs failed, after all others have ended.
        Stopped: if the user presses Ctrl-C, after checkpoints were saved.
    """
    resources = Resources(jobs, threads, executor, runs_per_job, tuple(devices), lockstep)
    target = Path(folder).absolute()  # the function may change the working directory

    def runs(combinations: Mapping[str, Mapping[str, Any]]) -> list[Run]:
        made = {name: partial(experiment, **values) for name, values in combinations.items()}
        return runs_of(made, seeds, target, checkpoint_every)

    if trials is not None:
        count("trials", trials)
    combinations = points(grid) if trials is None else by_name(corners(space_of(grid)))
    planned = runs(combinations)
    check_runs(planned, resources)
    measure = measure_of(metric, to_accuracy, _is_validated(planned[0]))
    check_experiments(first_of(planned), measure.metric or measure.kind, target=measure.metric is None)
    _ = measure.less_is_better  # raises an error before training where that is unknown
    if trials is None:
        records = list(perform_all(planned, target, resources, progress).values())
        return grid_result(grid, combinations, records, measure, to_accuracy)
    study = Study(
        target, grid, measure, list(dict.fromkeys(run.seed for run in planned)),
        sampler=sampler, sampler_seed=sampler_seed, trials_at_once=trials_at_once,
    )  # fmt: skip
    return search(
        study, trials, runs, lambda _, point: partial(experiment, **point), to_accuracy,
        resources=resources, progress=progress,
    )  # fmt: skip


def _is_validated(run: Run) -> bool:
    """Return whether the data of a run have validation examples; False for a run whose errors are reported later."""
    try:
        return bool(getattr(getattr(run.make(run.seed), "data", None), "is_validated", False))
    except TurnoutError:
        return False


def points(grid: Grid) -> dict[str, Mapping[str, Any]]:
    """Return every combination of values, the last axis fastest, by a name for folders: ``lr-0.01_mu-0.1``.

    Raises:
        ConfigurationError: if a grid has no axes, an axis has no values or a range, or two points have one name.
    """
    if not isinstance(grid, Mapping) or not grid:
        raise refuse("grid", given=grid, needed="values for at least one setting, such as {'local.lr': [0.01, 0.1]}")
    if ranges := [axis for axis, values in grid.items() if isinstance(values, Range)]:
        raise ConfigurationError(
            f"{' and '.join(ranges)}: a range has no end of combinations: say how many to try, as in --trials 30 (trials=30)"
        )
    for axis, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise refuse(f"grid {axis}", given=values, needed="a list of values")
    return by_name(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))  # type: ignore[arg-type]


def measure_of(metric: str | None, to_accuracy: float | None, validated: bool = False) -> Measure:
    """Parse the objective of a sweep; see `sweep`.

    Args:
        metric: a column or measure; None is the validation or the test accuracy, or the rounds until `to_accuracy`.
        to_accuracy: the target, if the cost of reaching it decides.
        validated: the data have validation examples.

    Raises:
        ConfigurationError: if a measure is unknown, a cost has no target, or a target is beside another measure.
    """
    if metric is None:
        final = Measure("final", "validation_accuracy" if validated else "test_accuracy")
        measure = final if to_accuracy is None else Measure("rounds")
    else:
        known = " " in metric.strip() or metric in ("rounds", "bytes", "simulated_seconds")
        measure = Measure.read(metric) if known else Measure("final", metric)
    if to_accuracy is not None:
        check_accuracy(to_accuracy)
    if (measure.metric is None) != (to_accuracy is not None):
        instead = f"{measure} needs to_accuracy" if to_accuracy is None else f"{measure} needs no to_accuracy"
        raise ConfigurationError(f"metric: {instead}: write one of metric=test_accuracy and to_accuracy=0.7")
    return measure


def grid_result(
    grid: Grid,
    combinations: Mapping[str, Mapping[str, Any]],
    records: Sequence[RunRecord],
    measure: Measure,
    to_accuracy: float | None,
) -> Sweep:
    """Return the finished runs of a grid, grouped by point."""
    groups = by_algorithm(records)
    axes = {axis: tuple(values) for axis, values in grid.items()}  # type: ignore[arg-type] - `points` refuses ranges
    return Sweep(axes, combinations, {name: groups.get(name, []) for name in combinations}, measure, to_accuracy)
