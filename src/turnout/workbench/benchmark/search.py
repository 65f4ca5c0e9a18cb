"""Search the step sizes of a rule by validation accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from turnout.comparison.tuning import Outcome, Search, Trial, Tuned
from turnout.core.checks import TurnoutError
from turnout.experiment import Experiment
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
    fixed = version.options(rule, cell)
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
