"""Run a rule in a cell of the benchmark: search its step sizes, and compute the figures of a finished run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from turnout.comparison.tuning import Outcome, Search, Trial, Tuned
from turnout.core.checks import TurnoutError
from turnout.experiment import Experiment
from turnout.result import Result
from turnout.simulation.running import Interrupted
from turnout.workbench.benchmark.cells import Cell, Version

Make = Callable[[Mapping[str, Any], int], Experiment]
"""Makes an experiment with options of a rule and a seed."""


def tuned(make: Make, rule: str, cell: Cell, version: Version, evaluations: int = 1) -> tuple[dict[str, Any], Tuned]:
    """Search the step sizes of a rule by validation accuracy; return its options with the chosen ones, and the search.

    Args:
        make: makes the experiment of the rule in the cell.
        rule: the rule, whose options and first step sizes the version declares.
        cell: the cell.
        version: the declarations.
        evaluations: number of evaluations of a trial, whose last quarter counts.
    """
    fixed = version.options(rule)
    search = Search(
        version.axes(rule, cell), cell.settings["rounds"], version.tuning_seeds, version.tuning_budget[cell.tier],
        lambda trials: [_outcome(make, {**fixed, **trial.values}, trial, evaluations) for trial in trials],
    )()  # fmt: skip
    return {**fixed, **search.values}, search


def late(experiment: Experiment, evaluations: int, column: str = "test_accuracy") -> tuple[float, int]:
    """Run an experiment, and return its mean accuracy over the last quarter of the rounds, and its client updates.

    The mean of several evaluations fluctuates less than the last one. It is NaN without examples.
    """
    table = replace(experiment, evaluate_every=max(1, experiment.rounds // evaluations)).run().rounds
    accuracies = table[column].to_pylist()[-max(1, experiment.rounds // 4) :]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return fmean(known) if known else math.nan, sum(table["num_participants"].to_pylist())


def _outcome(make: Make, options: Mapping[str, Any], trial: Trial, evaluations: int) -> Outcome:
    """Run a trial of a search; a run that diverges is the worst."""
    try:
        experiment = replace(make(options, trial.seed), rounds=trial.rounds)
        return Outcome(*late(experiment, evaluations, "validation_accuracy"))
    except Interrupted:  # by the user, which says nothing about the options
        raise
    except TurnoutError:
        return Outcome(-math.inf, 0)


FIGURES = {
    "test_accuracy": "test accuracy",
    "client_accuracy": "accuracy of clients on their own examples",
    "worst_tenth": "accuracy of the worst tenth of clients",
    "absent": "accuracy at clients absent in more than 80 % of rounds",
    "rounds_to_target": "rounds to the target",
    "updates_to_target": "client updates to the target",
    "bytes": "bytes sent both ways",
    "server_bytes": "memory of the server",
}
"""The figures by name, with their titles."""

ACCURACIES = ("test_accuracy", "client_accuracy", "worst_tenth", "absent")
"""The figures that are accuracies."""

ABSENT = 0.8
"""The share of rounds above which a client counts as absent."""


def figures_of(result: Result, target: float, personal: bool = False) -> dict[str, float | None]:
    """Return the figures of a run; None where there is none: no such client, or a target that is not reached.

    Args:
        result: the run.
        target: the test accuracy whose cost is counted.
        personal: whether each client is served by a model of its own. Then there is no test accuracy, because no model is
            meant for the examples of all.
    """
    history = result.history
    accuracy, own = history.column("test_accuracy")[1], history.client_column("test_accuracy")
    reached = None if personal else history.reached("test_accuracy", target)
    share = history.client_column("participations") / len(history)
    known = np.sort(own[~np.isnan(own)])
    found = {
        "test_accuracy": math.nan if personal else float(accuracy[~np.isnan(accuracy)][-1]),
        "client_accuracy": _mean(known),
        "worst_tenth": _mean(known[: max(1, len(known) // 10)]),
        "absent": _mean(own[(share < 1 - ABSENT) & ~np.isnan(own)]),
        "rounds_to_target": math.nan,
        "updates_to_target": math.nan,
        "bytes": float(history.total("bytes_up") + history.total("bytes_down")),
        "server_bytes": float(history.column("server_bytes")[1].max()),
    }
    if reached is not None:
        found["rounds_to_target"] = float(reached.rounds)
        found["updates_to_target"] = float(history.column("num_participants")[1][: reached.rounds].sum())
    return {name: value if math.isfinite(value) else None for name, value in found.items()}


def _mean(values: np.ndarray) -> float:
    """Return the mean of values; NaN without any."""
    return float(values.mean()) if len(values) else math.nan
