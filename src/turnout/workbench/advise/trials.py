"""Try rules on a trace, with one's own data or with those of a cell of the benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.core.random import generator
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.population import Population
from turnout.population.availability import Bernoulli, Trace
from turnout.results.statistics import Gap, gap, holm
from turnout.simulation.running import Interrupted
from turnout.workbench.benchmark.cells import Cell, Version
from turnout.workbench.benchmark.rows import Row

OWN = "own data"
"""The name of the cell of one's own data."""

Make = Callable[[str, Mapping[str, Any], int], Experiment]
"""A function of a rule, its options and a seed."""

MOST_TRIALS = 6
"""The largest number of step sizes that are tried for a rule on one's own data."""

_LR = 0.1
"""The local step size of settings without one."""


@dataclass(frozen=True)
class Trial:
    """A rule on the trace: its paired difference from the plain mean, with p by Holm's method over the tried rules."""

    rule: str
    options: dict[str, object]
    gap: Gap
    p: float

    @property
    def is_better(self) -> bool:
        """True if the rule is significantly better than the plain mean."""
        return self.gap.mean > 0 and self.p < 0.05


@dataclass(frozen=True, eq=False)
class Stage:
    """Where rules are tried: a trace, data, and options.

    Attributes:
        present: the trace, ``[clients, rounds]``.
        near: the cell in which step sizes were tuned.
        own: one's own data, model and local training; None for those of the cell.
        related: whether clients of the trace that are rarely there hold the examples with certain labels, as in the cells
            whose rates are related to labels. False gives examples to clients at random. For the data of a cell only.
    """

    present: np.ndarray
    near: Cell
    own: Cell | None = None
    related: bool = False

    def options(self, rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
        """Return the options of each rule that were tuned in the cell.

        With one's own data, the local step size is that of the own settings, times the ratio of the tuned one to the declared
        one of the cell.
        """
        cells = {row["rule"]: row["cells"].get(self.near.name, {}) for row in rows}
        found = {rule: dict(cell["options"]) for rule, cell in cells.items() if "runs" in cell}
        if self.own is not None:
            local = Settings.of(self.own.settings).table.get("local", {})
            scale = local.get("lr", _LR) / self.near.settings["local"]["lr"]
            for each in found.values():
                each["local.lr"] *= scale
                if "cohort_size" in each:
                    each["cohort_size"] = min(each["cohort_size"], len(self.present))
        return found

    def experiment(self, rule: str, options: Mapping[str, Any], seed: int) -> Experiment:
        """Return the experiment of a rule on the trace. Data of a cell are those of the seed, one's own those of seed 0.

        Raises:
            ConfigurationError: if the trace has more clients than one's own data.
        """
        experiment = (self.own or self.near).experiment(rule, options, seed)
        if self.own is not None:
            experiment = replace(experiment, data=self._data)
        number, present = experiment.data.num_clients, self.present
        if self.own is None:
            chosen = generator("clients of a trace", seed).choice(len(present), number, replace=len(present) < number)
            present = present[chosen]
            if self.related:
                present = _related(present, experiment)
        elif len(present) > number:
            raise ConfigurationError(
                f"data: got {number} clients, needed those of the trace, {len(present)}: "
                f"write data.num_clients={len(present)}, or --try in place of --config for data of the benchmark"
            )
        else:  # the last clients may never have come
            present = np.pad(present, ((0, number - len(present)), (0, 0)))
        trace = Trace(visits(present), rounds=present.shape[1])
        return replace(experiment, population=Population(availability=trace))

    @cached_property
    def _data(self) -> FederatedData:
        """One's own data."""
        assert self.own is not None
        return self.own.experiment("average_participating", {}, 0).data

    def accuracies(self, rule: str, options: Mapping[str, Any], seeds: Sequence[int]) -> dict[int, float]:
        """Return the test accuracy of a rule by seed, as its mean over the evaluations of the last quarter of the rounds."""
        return {seed: late_accuracy(self.experiment(rule, options, seed)) for seed in seeds}


def late_accuracy(experiment: Experiment) -> float:
    """Return the mean test accuracy over the last quarter of the rounds, which fluctuates less than the last one."""
    rounds = experiment.rounds
    run = replace(experiment, evaluate_every=max(1, rounds // 8)).run().rounds["test_accuracy"].to_numpy()
    return float(np.nanmean(run[-max(1, rounds // 4) :]))


def own_cell(settings: Mapping[str, Any]) -> Cell:
    """Return one's own data, model and local training as a cell, from settings such as a file of ``turnout compare``."""
    names = ("algorithm", "algorithms", "availability", "population", "pace", "seed", "seeds", "name", "to_accuracy")
    return Cell(OWN, "small", "unrelated", 1.0, {name: value for name, value in settings.items() if name not in names})


def tuned(make: Make, rule: str, options: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the options of a rule with the best local step size, by the late accuracy with a seed.

    The first step size is doubled or halved as long as that is better, at most `MOST_TRIALS` times.
    """

    def trial(factor: float) -> dict[str, Any]:
        return {**options, "local.lr": options["local.lr"] * factor}

    scores = {factor: _or_worst(make(rule, trial(factor), seed)) for factor in (1.0, 2.0)}
    best, step = (2.0, 2.0) if scores[2.0] > scores[1.0] else (1.0, 0.5)
    while len(scores) < MOST_TRIALS:
        score = scores[best * step] = _or_worst(make(rule, trial(best * step), seed))
        if score <= scores[best]:
            break
        best *= step
    return trial(best)


def tried(stage: Stage, rules: Sequence[str], rows: Sequence[Row], version: Version) -> list[Trial]:
    """Run rules and the plain mean over the seeds of a version, and return the rules by their mean difference, best first."""
    found = stage.options(rows)
    known = [version.reference, *(rule for rule in rules if rule in found)]
    options = {rule: found[rule] for rule in known}
    if stage.own is not None:  # options for the data of a cell are tuned there
        options = {rule: tuned(stage.experiment, rule, options[rule], version.tuning_seeds[0]) for rule in known}
    accuracy = {rule: stage.accuracies(rule, options[rule], version.seeds) for rule in known}
    gaps = {rule: gap(accuracy[rule], accuracy[version.reference]) for rule in known[1:]}
    compared = {rule: each for rule, each in gaps.items() if each is not None}
    adjusted = holm([each.p for each in compared.values()])
    trials = [Trial(rule, options[rule], each, p) for (rule, each), p in zip(compared.items(), adjusted, strict=True)]
    return sorted(trials, key=lambda trial: -trial.gap.mean)


def _or_worst(experiment: Experiment) -> float:
    """Return the late accuracy, which is the worst one for a run that diverges."""
    try:
        return late_accuracy(experiment)
    except Interrupted:
        raise
    except TurnoutError:
        return -math.inf


def visits(present: np.ndarray) -> tuple[tuple[int, int, int], ...]:
    """Return the visits of each client: client, first round, and the round after the last."""
    changes = np.diff(np.pad(present.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    clients, starts = np.nonzero(changes == 1)
    return tuple(zip(clients.tolist(), starts.tolist(), np.nonzero(changes == -1)[1].tolist(), strict=True))


def _related(present: np.ndarray, experiment: Experiment) -> np.ndarray:
    """Return the rows of a trace in an order in which clients with some labels are rarely there."""
    data = experiment.data
    rates = Bernoulli(correlated_with_labels=0.1).bind(data.num_clients, data.label_counts(), experiment.seed).rates
    ordered = np.empty_like(present)
    ordered[np.argsort(rates, kind="stable")] = present[np.argsort(present.mean(axis=1), kind="stable")]
    return ordered
