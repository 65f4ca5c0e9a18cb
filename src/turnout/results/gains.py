"""Compare clients in a federation with training alone, and with all examples in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, DataError
from turnout.record.query import History
from turnout.record.schema import METRICS, less_is_better
from turnout.results.influence import evenly
from turnout.results.names import label, scale_of
from turnout.results.records import RunRecord, by_algorithm

BASELINES = ("local", "centralized")
"""The names of the baselines, as recipes are called."""

MOST_CLIENTS = 40
"""The largest number of clients in a table and a plot."""

_TITLES = {"local": "local training", "centralized": "all data in one place"}


@dataclass(frozen=True, eq=False)
class Gains:
    """Scores of clients with an algorithm and with the baselines, on the same examples.

    Attributes:
        column: column of the table of clients, such as ``"test_accuracy"``.
        clients: names of the clients, or their numbers.
        scores: scores of clients by algorithm, ``[N]``, of one seed, or means over seeds if these have the same clients.
        by_seed: scores of clients by algorithm and seed.
    """

    column: str
    clients: list[str]
    scores: Mapping[str, np.ndarray]
    by_seed: Mapping[str, Mapping[int, np.ndarray]]

    @property
    def baselines(self) -> list[str]:
        """The baselines among the algorithms."""
        return [name for name in BASELINES if name in self.scores]

    def gain(self, algorithm: str, baseline: str, seed: int | None = None) -> np.ndarray:
        """Return by how much each client's score is better than with a baseline, ``[N]``, NaN where unknown."""
        scores = self.scores if seed is None else {name: values[seed] for name, values in self.by_seed.items()}
        return (scores[algorithm] - scores[baseline]) * (-1.0 if less_is_better(self.column) else 1.0)

    @property
    def shown(self) -> np.ndarray:
        """At most `MOST_CLIENTS` clients, evenly spaced from the most to the least gain of the first algorithm."""
        first = next((name for name in self.scores if name not in BASELINES), self.baselines[0])
        gain = self.gain(first, self.baselines[0])
        order = np.argsort(-gain, kind="stable")
        order = order[~np.isnan(gain[order])]
        return order[evenly(len(order), MOST_CLIENTS)]

    def summary(self) -> list[list[str]]:
        """Return a row for each algorithm and baseline: mean gain, share of clients that gain, and the least gain."""
        scale, rows = scale_of(self.column), []
        for algorithm in self.scores:
            for baseline in self.baselines if algorithm not in BASELINES else ():
                seeds = sorted(self.by_seed[algorithm].keys() & self.by_seed[baseline].keys())
                gains = [gain[~np.isnan(gain)] for gain in (self.gain(algorithm, baseline, seed) for seed in seeds)]
                means = [gain.mean() for gain in gains]
                spread = f" ± {scale * np.std(means, ddof=1):.1f}" if len(means) > 1 and scale == 100.0 else ""
                mean = f"{scale * np.mean(means):+.1f}{spread}" if scale == 100.0 else f"{np.mean(means):+.3g}"
                worst = scale * np.mean([gain.min() for gain in gains])
                share = 100 * np.mean([(gain > 0).mean() for gain in gains])
                rows.append([algorithm, _TITLES[baseline], mean, f"{share:.0f} %", f"{worst:+.3g}"])
        return rows

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the titles and the rows of a table of clients."""
        scale = scale_of(self.column)
        form = "{:.1f}" if scale == 100.0 else "{:.4g}"
        titles = ["client", *(f"{name}, {label(self.column)}" for name in self.scores)]
        rows = [
            [self.clients[client], *(form.format(scale * values[client]) for values in self.scores.values())]
            for client in self.shown
        ]
        return titles, rows


def gains(records: Sequence[RunRecord]) -> Gains | None:
    """Return the scores of clients with algorithms and baselines on the same examples; None if there is no baseline.

    Seeds are paired in which all algorithms have clients with as many examples. Clients of several seeds are the same if they
    hold as many examples; else only the first seed is shown by client.
    """
    groups = by_algorithm(records)
    if not any(name in BASELINES for name in groups) or all(name in BASELINES for name in groups):
        return None
    histories = {name: {record.seed: record.history for record in runs} for name, runs in groups.items()}
    seeds = [seed for seed in next(iter(histories.values())) if all(seed in runs for runs in histories.values())]
    seeds = [seed for seed in seeds if _have_same_clients([runs[seed] for runs in histories.values()])]
    column = _column([runs[seed] for runs in histories.values() for seed in seeds]) if seeds else None
    if column is None:
        return None
    by_seed = {name: {seed: runs[seed].client_column(column) for seed in seeds} for name, runs in histories.items()}
    first = next(iter(histories.values()))
    sizes = [first[seed].client_column("num_examples") for seed in seeds]
    same = all(np.array_equal(sizes[0], other) for other in sizes)
    scores = {
        name: np.mean([of[seed] for seed in seeds[: None if same else 1]], axis=0) for name, of in by_seed.items()
    }
    return Gains(column, first[seeds[0]].client_names(), scores, by_seed)


def gains_of(histories: Mapping[str, History]) -> Gains:
    """Return the gains of one run of each name.

    Raises:
        ConfigurationError: if the runs have clients with other examples, or no score of clients in common.
    """
    if not _have_same_clients(list(histories.values())):
        raise ConfigurationError("gains: the runs have clients with other examples: give runs on the same data")
    found = gains([RunRecord(name, 0, history) for name, history in histories.items()])
    if found is None:
        raise ConfigurationError(
            "gains: no score of clients was recorded in all runs: split the data with client_test_fraction=0.2"
        )
    return found


def needed(records: Sequence[RunRecord]) -> Gains:
    """Return the gains of records.

    Raises:
        DataError: if no baseline is among them.
    """
    found = gains(records)
    if found is None:
        raise DataError("no run of local or centralized with the same clients as those of another algorithm")
    return found


def _column(histories: Sequence[History]) -> str | None:
    """Return the most important score on test examples that all runs have of their clients; None if there is none."""
    for name in (f"test_{metric}" for metric in (*METRICS, "loss")):
        if all(
            name in history.clients.column_names and np.isfinite(history.client_column(name)).any()
            for history in histories
        ):
            return name
    return None


def _have_same_clients(histories: Sequence[History]) -> bool:
    """Return whether clients hold as many examples in all runs."""
    sizes = [history.client_column("num_examples") for history in histories]
    return all(np.array_equal(sizes[0], other, equal_nan=True) for other in sizes)
