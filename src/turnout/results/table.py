"""Compare algorithms: mean, standard deviation and confidence interval over seeds, with a paired test."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Group

from turnout.core.checks import counted
from turnout.record.schema import HEADLINES, explain
from turnout.results.column import APPEAL, BY_LABELS, COLUMNS, COST, GAP, INFLUENCE, RESULTS, column_of, is_metric
from turnout.results.influence import influence_figures
from turnout.results.measure import Target, costs
from turnout.results.records import RunRecord, by_algorithm, client_split
from turnout.results.significance import Row, better, legend
from turnout.results.statistics import Measured, gap
from turnout.results.terminal import Cell, TextTable

_METRICS = tuple(f"{split}_{metric}" for split in ("test", "train") for metric in HEADLINES)
"""Metrics whose differences are tested; only the first one that the first algorithm has."""


def comparison(records: Sequence[RunRecord], window: int | None = None, target: Target | None = None) -> list[Row]:
    """Compare algorithms: one row each, in the order of first appearance, with all recorded figures.

    Rows after the first include the difference from it over common seeds, with a paired t-test (`Gap`). With a target, rows
    include the costs of reaching it (`turnout.results.measure.costs`).

    Accuracies and losses are means over the last evaluations (see `History.final` for `window`); client-wise figures are
    those of test accuracy, or of training accuracy if no run tested its clients.
    """
    split, spent = client_split(records), {} if target is None else costs(records, target)
    rows = []
    for algorithm, group in by_algorithm(records).items():
        runs = {record.seed: _figures(record, window, split) for record in group}
        shared = [key for key in next(iter(runs.values())) if all(key in figures for figures in runs.values())]
        values = {key: {seed: figures[key] for seed, figures in runs.items()} for key in shared}
        figures = {key: Measured.over(list(of_seeds.values())) for key, of_seeds in values.items()}
        by = next((record.history.stopped_by for record in group if record.history.stopped_by), None)
        rows.append(Row(algorithm, len(group), figures, spent.get(algorithm, {}), values, window, by))
    return _with_gaps(rows)


def _with_gaps(rows: Sequence[Row]) -> list[Row]:
    """Add the paired differences from the first algorithm, in the first metric and for groups of labels."""
    first, *others = rows
    keys = [*[key for key in _METRICS if key in first.figures][:1], *by_labels(rows[:1])]
    compared = [first]
    for row in others:
        gaps = {
            f"{GAP}{key}_to_{first.algorithm}": difference
            for key in keys
            if key in row.figures
            if (difference := gap(row.by_seed[key], first.by_seed[key])) is not None
        }
        compared.append(replace(row, figures=row.figures | gaps))
    return compared


def cells(
    rows: Sequence[Row], keys: Sequence[str] = RESULTS, interval: bool = False
) -> tuple[list[str], list[list[Cell]]]:
    """Return the keys of columns with figures, and the cells of each row: text, and True if it is significantly better.

    A figure is marked if it is significantly better than that of every other algorithm, and a difference if the algorithm is
    significantly better than the first one (`turnout.reporting.leader`).
    """
    if keys is RESULTS:
        metrics = [key for key in _keys(rows) if is_metric(key)]
        first = [key for key in metrics if key.endswith("perplexity")]
        keys = [*first, *keys, *(key for key in metrics if key not in first)]
    keys = [shown_key for key in keys if _is_shown(key, rows) for shown_key in (key, *_gaps(key, rows))]
    marked = {key: better(key, rows) for key in keys}

    def cell(row: Row, key: str) -> Cell:
        if (figure := row.figure(key)) is None:
            return "–", False
        return column_of(key).show(figure, interval), row.algorithm in marked[key]

    return keys, [[cell(row, key) for key in keys] for row in rows]


def by_labels(rows: Sequence[Row]) -> list[str]:
    """Return the keys of the accuracies of groups of labels."""
    return [key for key in _keys(rows) if "accuracy_of_" in key and GAP not in key]


def _gaps(key: str, rows: Sequence[Row]) -> list[str]:
    """Return the keys of differences in a figure."""
    return [name for name in _keys(rows) if name.startswith(f"{GAP}{key}_to_")]


def appeal_cells(rows: Sequence[Row]) -> dict[str, tuple[list[str], list[list[Cell]]]]:
    """Return keys and cells of the columns about the requirements of clients, by heading; empty without any."""
    return {title: shown for title, keys in APPEAL.items() if (shown := cells(rows, keys))[0]}


def rich_tables(rows: Sequence[Row]) -> Group:
    """Return the comparison for a terminal: results and, if recorded, requirements and influence of clients."""
    others = {BY_LABELS: by_labels(rows), **APPEAL, "Influence of a client (fair share = 1)": INFLUENCE}
    shown = [rich_table(rows, keys, title) for title, keys in others.items() if cells(rows, keys)[0]]
    return Group(rich_table(rows), *shown)


def rich_table(rows: Sequence[Row], keys: Sequence[str] = RESULTS, title: str = "") -> TextTable:
    """Return columns of the comparison for a terminal; a figure that is significantly better is bold."""
    keys, lines = cells(rows, keys)
    titles = ["algorithm", *(column_of(key).short for key in keys)]
    shown = [[(row.algorithm, False), *line] for row, line in zip(rows, lines, strict=True)]
    return TextTable(titles, shown, title, "\n".join(caption(rows, keys)))


def _figures(record: RunRecord, window: int | None, split: str) -> dict[str, float]:
    """Return the recorded figures of one run, by column key."""
    figures: dict[str, Any] = record.history.summary(window)
    fairness = figures.pop("fairness", {"of": None})
    if fairness["of"] == f"{split}_accuracy":
        figures |= {f"client_{split}_{name}": value for name, value in fairness.items()}
    further = itertools.chain(*APPEAL.values(), ("unseen_test_accuracy",))
    figures |= influence_figures(record) | _finals(record, further, window)
    metrics = {key: figures[key] for key in figures if key not in COLUMNS and is_metric(key)}
    return {key: figures[key] for key in COLUMNS if key in figures} | metrics | _of_groups(record, window)


def _of_groups(record: RunRecord, window: int | None) -> dict[str, float]:
    """Return accuracies by groups of labels: of test examples, or of training examples if none was tested."""
    finals = _finals(record, (name for name in record.history.column_names if "_accuracy_of_" in name), window)
    tested = {name: value for name, value in finals.items() if name.startswith("test_")}
    return tested or finals


def _finals(record: RunRecord, names: Iterable[str], window: int | None) -> dict[str, float]:
    """Return the final values of the recorded columns among `names`."""
    return {name: record.history.final(name, window) for name in names if record.history.has_values(name)}


def _keys(rows: Sequence[Row]) -> list[str]:
    """Return the keys of all figures, in the order of first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row.figures))


def _is_shown(key: str, rows: Sequence[Row]) -> bool:
    """Return whether a column has figures that are worth a column."""
    if key in COST:
        return any(key in row.costs for row in rows)
    means, column = [row.figures[key].mean for row in rows if key in row.figures], column_of(key)
    if column.differing:
        return len(set(means)) > 1
    return any(means) if column.exceptional else bool(means)


def caption(rows: Sequence[Row], keys: Sequence[str], interval: bool = False) -> list[str]:
    """Return what a table shows: number of seeds and spread, the rounds of final figures, tests, and the meaning of bold."""
    seeds, cost = "/".join(map(str, sorted({row.num_seeds for row in rows}))), bool(keys) and keys[0] in COST
    several, lines = seeds != "1", list[str]()
    if several:
        spread = "mean [95 % confidence interval]" if interval else "mean ± standard deviation"
        lines.append(f"{'median (quartiles)' if cost else spread} over {seeds} seeds")
    if not cost and re.search("accuracy|loss|rmse", " ".join(keys)):
        window = rows[0].window
        final = f"means over the last {f'{window:,} rounds' if window else 'tenth of the rounds'}"
        lines = [", of ".join([*lines, final])]
    if any(key.startswith(GAP) for key in keys):
        lines.append("differences with p of a paired t-test over the same seeds")
    if several and len(rows) > 1:
        lines.append(legend(keys))
    return [*lines, *stopped(rows)]


def empty_rounds(records: Sequence[RunRecord]) -> list[str]:
    """Say for each algorithm in how many rounds nobody took part, and when the first participant came."""
    notes = []
    for algorithm, group in by_algorithm(records).items():
        empty = [figures for record in group if (figures := record.history.empty_rounds())]
        if not empty:
            continue
        rounds, runs = sum(record.history.last_round for record in group), counted(len(group), "run")
        first = [figures.get("first_participation") for figures in empty]
        latest = max((number for number in first if number is not None), default=0)
        then = f"the first participant came in round {latest:,}{' at the latest' if len(group) > 1 else ''}"
        if None in first:
            then = "a run had no participant at all"
        number = sum(figures["empty_rounds"] for figures in empty)
        notes.append(f"{algorithm}: nobody took part in {number:,} of the {rounds:,} rounds of {runs}; {then}")
    return notes


def stopped(rows: Sequence[Row]) -> list[str]:
    """Say which algorithms have runs that test examples ended."""
    columns = dict.fromkeys(row.stopped_by for row in rows if row.stopped_by)
    names = {column: ", ".join(row.algorithm for row in rows if row.stopped_by == column) for column in columns}
    return [f"{names[column]}: {note}" for column in columns if (note := explain(column))]
