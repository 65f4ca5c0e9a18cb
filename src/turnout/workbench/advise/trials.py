"""Try rules on a trace, with one's own data or with those of a cell of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean
from typing import Any

import numpy as np

from turnout.cli.layers import merge
from turnout.cli.print_config import completed
from turnout.cli.settings import Settings
from turnout.cli.tune import held_out
from turnout.core.checks import ConfigurationError
from turnout.core.random import generator
from turnout.data.federated import FederatedData
from turnout.experiment import Experiment
from turnout.population import Population
from turnout.population.availability import Bernoulli, Trace
from turnout.results.statistics import Gap, adjusted, gap
from turnout.workbench.benchmark.cells import Cell, Version
from turnout.workbench.benchmark.rows import Row
from turnout.workbench.benchmark.runs import late, tuned

OWN = "own data"
"""The name of the cell of one's own data."""

SEEDS, EVALUATIONS = range(12), 8
"""The seeds of a trial, and the evaluations of each run, whose last quarter counts."""


LEAD = 0.01
"""The lead in accuracy over the plain mean above which a rule is recommended; the noise of a search is as large."""


@dataclass(frozen=True)
class Trial:
    """A rule on the trace: its paired difference from the plain mean, with p by Holm's method over the tried rules."""

    rule: str
    options: dict[str, object]
    gap: Gap

    @property
    def is_better(self) -> bool:
        """True if the rule is significantly better than the plain mean, and the 95 % interval of its lead is above `LEAD`."""
        return self.gap.is_better and self.gap.margin is not None and self.gap.mean - self.gap.margin > LEAD


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

    def options(self, rule: str, rows: Sequence[Row], version: Version) -> dict[str, Any] | None:
        """Return the options of a rule that were tuned in the cell; None if the rule is not defined there.

        With one's own data, step sizes are searched as in the benchmark, on seeds that are not reported.
        """
        found = {row["rule"]: row["cells"].get(self.near.name, {}).get("options") for row in rows}.get(rule)
        if found is None or self.own is None:
            return found
        return tuned(partial(self.experiment, rule), rule, self.own, version, EVALUATIONS)[0]

    def experiment(self, rule: str, options: Mapping[str, Any], seed: int) -> Experiment:
        """Return the experiment of a rule on the trace, which begins with another of its rounds for each seed.

        Data of a cell are those of the seed, one's own those of seed 0.

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
        rounds = present.shape[1]
        present = np.roll(present, generator("first round of a trace", seed).integers(rounds), axis=1)
        trace = Trace(visits(present), rounds=rounds)
        return replace(experiment, population=Population(availability=trace))

    @cached_property
    def _data(self) -> FederatedData:
        """One's own data."""
        assert self.own is not None
        return Settings.of(self.own.settings).seeded(0).data()

    def accuracies(self, rule: str, options: Mapping[str, Any]) -> dict[int, float]:
        """Return the test accuracy of a rule by seed, as its mean over the last quarter of the rounds."""
        return {seed: late(self.experiment(rule, options, seed), EVALUATIONS)[0] for seed in SEEDS}


def own_cell(settings: Mapping[str, Any]) -> Cell:
    """Return one's own data, model and local training as a cell, from settings such as a file of ``turnout compare``.

    A fifth of each client's examples is held out for the search of step sizes, unless the settings hold out others.
    """
    names = ("algorithm", "algorithms", "availability", "population", "pace", "seed", "seeds", "name", "to_accuracy")
    table = Settings.of({name: value for name, value in settings.items() if name not in names}).table
    whole = completed(merge(table, held_out(table["data"])))
    return Cell(OWN, "small", "unrelated", 1.0, {name: value for name, value in whole.items() if name not in names})


def tried(stage: Stage, rules: Sequence[str], rows: Sequence[Row], version: Version) -> list[Trial]:
    """Run rules and the plain mean over `SEEDS`, and return the rules by their mean difference, best first.

    Where step sizes are searched, on one's own data, the plain mean has the best of its own and those of the rules, so that
    no rule is ahead by a luckier search.
    """
    found = {rule: stage.options(rule, rows, version) for rule in (version.reference, *rules)}
    options = {rule: each for rule, each in found.items() if each is not None}
    own = options.pop(version.reference)
    searched = options.values() if stage.own is not None else ()
    plain = strongest(partial(stage.accuracies, version.reference), own, searched)
    accuracy = {rule: stage.accuracies(rule, each) for rule, each in options.items()}
    compared = {rule: each for rule, runs in accuracy.items() if (each := gap(runs, plain)) is not None}
    trials = [Trial(rule, options[rule], each) for rule, each in adjusted(compared).items()]
    return sorted(trials, key=lambda trial: -trial.gap.mean)


def strongest(
    accuracies: Callable[[dict[str, Any]], dict[int, float]], own: dict[str, Any], others: Iterable[Mapping[str, Any]]
) -> dict[int, float]:
    """Return the accuracies of a rule by seed, with the best of its own options and of those that it shares with others."""
    candidates = [own]
    for other in others:
        shared = {name: other.get(name, value) for name, value in own.items()}
        if shared not in candidates:
            candidates.append(shared)
    return max(map(accuracies, candidates), key=lambda runs: fmean(runs.values()))


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
