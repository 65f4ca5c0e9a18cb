"""A grid over anything: one run for each combination of values and each seed, and the best of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from turnout.comparison.checks import check_experiments
from turnout.comparison.compare import check_runs, first_of, perform_all, runs_of
from turnout.comparison.run import Listener
from turnout.core.checks import ConfigurationError, refuse
from turnout.experiment import Experiment
from turnout.reporting.grid import Sweep, written
from turnout.reporting.measure import Measure
from turnout.reporting.records import RunRecord, by_algorithm
from turnout.reporting.target import check_accuracy

Grid = Mapping[str, Sequence[Any]]
"""The values of each axis, by its name."""


def sweep(
    experiment: Callable[..., Experiment],
    grid: Grid,
    seeds: int | Iterable[int],
    folder: str | Path,
    *,
    metric: str | None = None,
    to_accuracy: float | None = None,
    jobs: int | None = None,
    threads: int = 1,
    checkpoint_every: int | None = None,
    progress: bool | Listener = False,
) -> Sweep:
    """Run ``experiment(seed, **values)`` for every combination of values and every seed, and rank the combinations.

    Runs are side by side, in folders ``folder/POINT/seed-SEED``, and go on there like those of `compare`::

        def experiment(seed, lr, mu):
            return Experiment(..., algorithm=folb(Sgd(lr=lr), also=(Prox(mu),)), seed=seed)

        found = sweep(experiment, {"lr": [0.01, 0.1], "mu": [0.001, 0.1]}, seeds=3, folder="runs/lr-mu")
        found.best  # {"lr": 0.1, "mu": 0.001}

    Args:
        experiment: a function of the seed and of one argument for each axis.
        grid: the values of each axis.
        seeds: so many, from 0, or which.
        folder: where all of it goes.
        metric: what decides: a recorded column, whose mean over the last tenth of the rounds counts, or any `Measure`,
            ``"average train_loss"``; by default test accuracy, or the rounds until `to_accuracy`. The mean over seeds
            decides, or the median of what was spent until `to_accuracy`. Choosing by test accuracy spends the test on it:
            report the choice on seeds or data that it has not seen.
        to_accuracy: the accuracy to reach, where rounds, bytes or simulated seconds until then decide.
        jobs, threads, checkpoint_every, progress: as in `compare`.

    Raises:
        ConfigurationError: for a grid, metric, seeds or jobs that cannot be run.
        RunsFailed: where some runs failed, after all others have ended.
        Stopped: on Ctrl-C, after checkpoints were saved.
    """
    measure = measure_of(metric, to_accuracy)
    combinations = points(grid)
    experiments = {name: partial(experiment, **values) for name, values in combinations.items()}
    runs = runs_of(experiments, seeds, Path(folder), checkpoint_every)
    check_runs(runs, jobs, threads)
    check_experiments(first_of(runs), measure.metric or measure.kind, target=to_accuracy is not None)
    records = list(perform_all(runs, Path(folder), jobs=jobs, threads=threads, progress=progress).values())
    return sorted_out(grid, combinations, records, measure, to_accuracy)


def points(grid: Grid) -> dict[str, dict[str, Any]]:
    """Every combination of values, the last axis fastest, by a name that folders can have: ``lr-0.01_mu-0.1``.

    Raises:
        ConfigurationError: for a grid without axes, an axis without values, or values that cannot be told apart.
    """
    if not isinstance(grid, Mapping) or not grid:
        raise refuse("grid", given=grid, needed="values for at least one setting, such as {'local.lr': [0.01, 0.1]}")
    for axis, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise refuse(f"grid {axis}", given=values, needed="a list of values")
    ends = [axis.rpartition(".")[2] for axis in grid]
    short = {axis: axis if ends.count(end) > 1 else end for axis, end in zip(grid, ends, strict=True)}
    found: dict[str, dict[str, Any]] = {}
    for values in product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        name = "_".join(f"{short[axis]}-{_plain(value)}" for axis, value in point.items())
        if name in found:
            raise ConfigurationError(f"grid: two points are called {name}: give each value once")
        found[name] = point
    return found


def measure_of(metric: str | None, to_accuracy: float | None) -> Measure:
    """Return what decides, from how it is written; see `sweep`.

    Raises:
        ConfigurationError: for a measure that does not exist, or lacks an accuracy to reach, or has one too many.
    """
    if metric is None:
        measure = Measure("final", "test_accuracy") if to_accuracy is None else Measure("rounds")
    else:
        known = " " in metric.strip() or metric in ("rounds", "bytes", "simulated_seconds")
        measure = Measure.read(metric) if known else Measure("final", metric)
    if to_accuracy is not None:
        check_accuracy(to_accuracy)
    if (measure.metric is None) != (to_accuracy is not None):
        instead = f"{measure} needs to_accuracy" if to_accuracy is None else f"{measure} needs no to_accuracy"
        raise ConfigurationError(f"metric: {instead}: write one of metric=test_accuracy and to_accuracy=0.7")
    return measure


def sorted_out(
    grid: Grid,
    combinations: Mapping[str, Mapping[str, Any]],
    records: Sequence[RunRecord],
    measure: Measure,
    to_accuracy: float | None,
) -> Sweep:
    """Return the finished runs of a grid, point by point."""
    groups = by_algorithm(records)
    axes = {axis: tuple(values) for axis, values in grid.items()}
    return Sweep(axes, combinations, {name: groups.get(name, []) for name in combinations}, measure, to_accuracy)


def _plain(value: Any) -> str:
    """Return a value in letters that folders can have."""
    return re.sub(r"[^\w.-]+", "-", written(value))
