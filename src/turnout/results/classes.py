"""Summarize the predictions of algorithms by class, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.core.checks import DataError
from turnout.record.predictions import by_class, confusion
from turnout.results.influence import evenly
from turnout.results.records import RunRecord, by_algorithm

MOST_CLASSES = 30
"""The largest number of classes in a table."""


def class_names(config: Any) -> list[str] | None:
    """Return the names of the classes of a run on a table, from its configuration as plain values; None without names."""
    recipe = ((config or {}).get("data") or {}).get("recipe") or {}
    names = (recipe.get("preparation") or {}).get("classes")
    return None if names is None else list(names)


def predictions_of(records: Sequence[RunRecord]) -> dict[str, list[pa.Table]]:
    """Return the tables of predictions of each algorithm, one for each seed.

    Raises:
        DataError: if no run has one.
    """
    tables = {
        name: [record.history.predictions for record in group if len(record.history.predictions)]
        for name, group in by_algorithm(records).items()
    }
    if not any(tables.values()):
        raise DataError("no run counted predictions: they need test examples with class labels")
    return {name: found for name, found in tables.items() if found}


def class_table(records: Sequence[RunRecord]) -> tuple[list[str], list[list[str]]] | None:
    """Return the titles and rows of a table of precision and recall by class; None without predictions.

    Counts are summed over seeds. Of more than `MOST_CLASSES` classes, so many are shown, evenly spaced from the least to the
    largest recall of the first algorithm.
    """
    try:
        tables = predictions_of(records)
    except DataError:
        return None
    names = class_names(records[0].config)
    figures = {name: by_class(confusion(found), names) for name, found in tables.items()}
    first = next(iter(figures.values()))
    order = np.argsort([-1.0 if value is None else value for value in first["recall"].to_pylist()], kind="stable")
    shown = np.sort(order[evenly(len(order), MOST_CLASSES)])
    columns = {"class": first["class"], "examples": first["examples"]}
    for name, table in figures.items():
        columns |= {f"{name}, {figure} (%)": table[figure] for figure in ("precision", "recall")}
    cells = [[_cell(value) for value in column.take(pa.array(shown)).to_pylist()] for column in columns.values()]
    return list(columns), [list(row) for row in zip(*cells, strict=True)]


def _cell(value: str | float | None) -> str:
    """Return the text of a name, a count, or a share."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{100 * value:.1f}"
