"""Compare algorithms: mean, standard deviation and confidence interval over seeds, with a paired test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Group

from turnout.reporting.column import (
    APPEAL,
    BY_LABELS,
    COLUMNS,
    COST,
    GAP,
    INFLUENCE,
    RESULTS,
    column_of,
    is_metric,
)
from turnout.reporting.influence import influence_figures
from turnout.reporting.records import RunRecord, by_algorithm, client_split
from turnout.reporting.statistics import Gap, Measured, Quartiles, gap
from turnout.reporting.target import TO_TARGET, Target, costs
from turnout.reporting.terminal import Cell, TextTable


@dataclass(frozen=True)
class Row:
    """One algorithm's line of the comparison: its figures by column key, those that were recorded, and its costs."""

    algorithm: str
    num_seeds: int
    figures: dict[str, Measured]
    costs: Mapping[str, Quartiles] = field(default_factory=dict)

    def figure(self, key: str) -> Measured | Quartiles | None:
        """Return a figure or a cost by its column key, None where there is none."""
        return self.figures.get(key) or self.costs.get(key)


_METRICS = ("test_accuracy", "test_rmse", "train_accuracy", "train_rmse")
"""Metrics of which differences are tested: the first of these that the first algorithm has."""


def comparison(records: Sequence[RunRecord], window: int | None = None, target: Target | None = None) -> list[Row]:
    """Compare algorithms: one row each, in the order of first appearance, with every figure that was recorded.

    With a target, rows also have what was spent until it was reached (`turnout.reporting.target.costs`).

    Rows after the first also say how far they are from it over the seeds that both have, by a paired t-test (`Gap`).

    Accuracies and losses are means over the last evaluations (see `History.final` for `window`); client-wise figures are
    those of test accuracy, or of training accuracy if no run tested its clients.
    """
    split, spent = client_split(records), {} if target is None else costs(records, target)
    rows, by_seed = [], {}
    for algorithm, group in by_algorithm(records).items():
        runs = [_figures(record, window, split) for record in group]
        shared = [key for key in runs[0] if all(key in figures for figures in runs)]
        figures = {key: Measured.over([f[key] for f in runs]) for key in shared}
        rows.append(Row(algorithm, len(group), figures, spent.get(algorithm, {})))
        by_seed[algorithm] = {key: {r.seed: f[key] for r, f in zip(group, runs, strict=True)} for key in shared}
    return _with_gaps(rows, by_seed)


def _with_gaps(rows: Sequence[Row], by_seed: Mapping[str, Mapping[str, Mapping[int, float]]]) -> list[Row]:
    """Add how far each algorithm is from the first one, seed by seed, in the first metric and for groups of labels."""
    first, *others = rows
    keys = [*[key for key in _METRICS if key in first.figures][:1], *by_labels(rows[:1])]
    compared = [first]
    for row in others:
        gaps = {
            f"{GAP}{key}_to_{first.algorithm}": gap(by_seed[row.algorithm][key], by_seed[first.algorithm][key])
            for key in keys
            if key in row.figures
        }
        compared.append(
            replace(
                row,
                figures=row.figures | {key: difference for key, difference in gaps.items() if difference is not None},
            )
        )
    return compared


def cells(
    rows: Sequence[Row], keys: Sequence[str] = RESULTS, interval: bool = False
) -> tuple[list[str], list[list[Cell]]]:
    """Return the keys of the columns that have figures, and for each row its cells: text, and whether it leads its column.

    A figure leads if it is better than every other by more than the spread of either, so with one seed none does; a
    difference stands out at p < 0.05.
    """
    keys = [*keys, *_metrics(rows)] if keys is RESULTS else keys
    keys = [shown_key for key in keys if _worth_showing(key, rows) for shown_key in (key, *_gaps(key, rows))]
    best = {key: leader(key, rows) for key in keys}
    lines = []
    for row in rows:
        line = []
        for key in keys:
            figure = row.figure(key)
            text = "–" if figure is None else column_of(key).show(figure, interval)
            stands_out = figure.significant if isinstance(figure, Gap) else figure is not None and figure is best[key]
            line.append((text, stands_out))
        lines.append(line)
    return keys, lines


def by_labels(rows: Sequence[Row]) -> list[str]:
    """Return the keys of the accuracies of groups of labels."""
    return list(dict.fromkeys(key for row in rows for key in row.figures if "accuracy_of_" in key and GAP not in key))


def _gaps(key: str, rows: Sequence[Row]) -> list[str]:
    """Return the key of the differences in a figure, where there are any."""
    return list(dict.fromkeys(name for row in rows for name in row.figures if name.startswith(f"{GAP}{key}_to_")))


def appeal_cells(rows: Sequence[Row]) -> dict[str, tuple[list[str], list[list[Cell]]]]:
    """Return keys and cells of the columns about what clients require, by the heading of those clients; empty without any."""
    return {title: shown for title, keys in APPEAL.items() if (shown := cells(rows, keys))[0]}


def rich_tables(rows: Sequence[Row]) -> Group:
    """Return the comparison for a terminal: results, and what clients require and how they are heard, if recorded."""
    heard = [rich_table(rows, INFLUENCE, "Influence of a client (fair share = 1)")] if cells(rows, INFLUENCE)[0] else []
    required = [rich_table(rows, APPEAL[title], title) for title in appeal_cells(rows)]
    groups = [rich_table(rows, keys, BY_LABELS)] if (keys := by_labels(rows)) else []
    return Group(rich_table(rows), *groups, *required, *heard)


def rich_table(rows: Sequence[Row], keys: Sequence[str] = RESULTS, title: str = "") -> TextTable:
    """Return some columns of the comparison for a terminal; in bold what leads by more than the spread."""
    keys, lines = cells(rows, keys)
    titles = ["algorithm", *(column_of(key).short for key in keys)]
    shown = [[(row.algorithm, False), *line] for row, line in zip(rows, lines, strict=True)]
    return TextTable(titles, shown, title, _caption(rows, keys))


def _figures(record: RunRecord, window: int | None, split: str) -> dict[str, float]:
    """Return every figure of one run that was recorded, by column key."""
    figures: dict[str, Any] = record.history.summary(window)
    fair = figures.pop("fairness", {"of": None})
    if fair["of"] == f"{split}_accuracy":
        figures |= {f"client_{split}_{name}": value for name, value in fair.items()}
    judged = itertools.chain(*APPEAL.values(), ("unseen_test_accuracy",))
    figures |= influence_figures(record) | _finals(record, judged, window)
    metrics = {key: figures[key] for key in figures if key not in COLUMNS and is_metric(key)}
    return {key: figures[key] for key in COLUMNS if key in figures} | metrics | _of_groups(record, window)


def _of_groups(record: RunRecord, window: int | None) -> dict[str, float]:
    """Return accuracies by groups of labels: of test examples, or of training examples if none was tested."""
    finals = _finals(record, (name for name in record.history.column_names if "_accuracy_of_" in name), window)
    tested = {name: value for name, value in finals.items() if name.startswith("test_")}
    return tested or finals


def _finals(record: RunRecord, names: Iterable[str], window: int | None) -> dict[str, float]:
    """Return where columns end, of those that were recorded."""
    return {name: record.history.final(name, window) for name in names if record.history.has_values(name)}


def _metrics(rows: Sequence[Row]) -> list[str]:
    """Return the columns of the metrics that runs were asked for, in the order of first appearance."""
    return [key for key in dict.fromkeys(key for row in rows for key in row.figures) if is_metric(key)]


def _worth_showing(key: str, rows: Sequence[Row]) -> bool:
    if key in COST:
        return any(key in row.costs for row in rows)
    means, column = [row.figures[key].mean for row in rows if key in row.figures], column_of(key)
    if column.differing:
        return len(set(means)) > 1
    return any(means) if column.exceptional else bool(means)


def leader(key: str, rows: Sequence[Row]) -> Measured | Quartiles | None:
    """Return the figure of a column that is better than every other by more than the spread of either; None without one."""
    if key in TO_TARGET.values():
        return _least([row.costs[key] for row in rows if key in row.costs])
    better, figures = column_of(key).better, _finite(key, rows)
    if better is None or len(figures) < 2 or None in [figure.std for figure in figures]:
        return None
    mean = better(figure.mean for figure in figures)
    best = next(figure for figure in figures if figure.mean == mean)
    return best if all(_apart(best, other) for other in figures if other is not best) else None


def _least(figures: Sequence[Quartiles]) -> Quartiles | None:
    """Return the figure whose quartiles are below those of every other; None without one, and with one seed."""
    if len(figures) < 2 or any(figure.num < 2 for figure in figures):
        return None
    least = min(figures, key=lambda figure: figure.high)
    return least if all(least.high < other.low for other in figures if other is not least) else None


def _finite(key: str, rows: Sequence[Row]) -> list[Measured]:
    """Return the figures of a column that are numbers."""
    return [row.figures[key] for row in rows if key in row.figures and math.isfinite(row.figures[key].mean)]


def _apart(one: Measured, other: Measured) -> bool:
    """Return whether two figures differ by more than the spread of either."""
    return abs(other.mean - one.mean) > max(one.std or 0.0, other.std or 0.0)


def _caption(rows: Sequence[Row], keys: Sequence[str]) -> str:
    """Return how the figures were made."""
    seeds = {row.num_seeds for row in rows}
    if keys and keys[0] in COST:
        return f"median (quartiles) over {max(seeds)} seeds" if seeds != {1} else ""
    over = "" if seeds == {1} else f"mean ± standard deviation over {'/'.join(map(str, sorted(seeds)))} seeds"
    if not any("accuracy" in key or "loss" in key for key in keys):
        return over
    paired = ["\np of a paired t-test over the same seeds"] if any(key.startswith(GAP) for key in keys) else []
    return ", of ".join(filter(None, [over, "means over the last tenth of the rounds"])) + "".join(paired)
