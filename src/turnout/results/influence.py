"""Summarize the influence of clients: contributions, staleness, and influence relative to the fair share.

The influence of a client is its share of the weights of a step, averaged over steps, and the fair share is 1 / N. The sum of
the weights of a step does not count: where each step has one report, influence is the share of reports. Asynchronous runs
record it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.results.records import RunRecord

MOST_ROWS = 20

_COUNTED = {"contributions": ("contributions", "{:,.0f}"), "mean_staleness": ("mean staleness", "{:.2f}")}


@dataclass(frozen=True)
class ClientTable:
    """A table with a row per client, ordered by the number of contributions.

    Attributes:
        seed: seed of the runs.
        num_clients: number of all clients, of which the table shows some.
        titles: titles of the columns.
        rows: cells.
    """

    seed: int
    num_clients: int
    titles: list[str]
    rows: list[list[str]]


def records_influence(record: RunRecord) -> bool:
    """Return whether a run recorded the influence of clients."""
    names = record.history.clients.column_names
    return "influence" in names and not np.isnan(record.history.client_column("influence")).all()


def influence_figures(record: RunRecord) -> dict[str, float]:
    """Return the mean staleness of reports, the least and most influence in fair shares, and the excess over fair shares.

    The excess is ``sum_n max(influence_n - 1/N, 0)``: 0 for equal influence, 1 - 1/N if one client has all influence.
    Empty if a run did not record influence.
    """
    if not records_influence(record):
        return {}
    contributions, staleness, influence = (
        np.nan_to_num(record.history.client_column(name)) for name in ("contributions", "mean_staleness", "influence")
    )
    n = len(influence)
    return {
        "staleness": float(contributions @ staleness / contributions.sum()),
        "influence_least": float(n * influence.min()),
        "influence_most": float(n * influence.max()),
        "influence_beyond": float(np.maximum(influence - 1 / n, 0).sum()),
    }


def client_table(records: Sequence[RunRecord]) -> ClientTable | None:
    """Return a table of at most 20 clients of the first seed, evenly spaced by contributions; None without influence.

    A quantity that is the same for all algorithms has one column.
    """
    complete = [record for record in records if records_influence(record)]
    if not complete:
        return None
    runs = [record for record in complete if record.seed == complete[0].seed]
    n = len(runs[0].history.clients)
    order = np.argsort(-np.nan_to_num(runs[0].history.client_column("contributions")), kind="stable")
    shown = order[evenly(n, MOST_ROWS)]
    names = runs[0].history.client_names()
    columns = {"client": [names[client] for client in shown]}
    for name in _COUNTED:
        columns |= _counted(runs, name, shown)
    columns["fair share (%)"] = [f"{100 / n:.3g}"] * len(shown)
    for record in runs:
        shares = 100 * record.history.client_column("influence")[shown]
        columns[f"influence (%), {record.algorithm}"] = _texts(shares, "{:.3g}")
    return ClientTable(runs[0].seed, n, list(columns), [list(row) for row in zip(*columns.values(), strict=True)])


def _counted(runs: Sequence[RunRecord], name: str, shown: np.ndarray) -> dict[str, list[str]]:
    """Return a column for each run by its title, or a single one if all runs are equal."""
    title, form = _COUNTED[name]
    values = [record.history.client_column(name) for record in runs]
    if all(np.array_equal(values[0], other, equal_nan=True) for other in values):
        return {title: _texts(values[0][shown], form)}
    texts = [_texts(column[shown], form) for column in values]
    return {f"{title}, {record.algorithm}": text for record, text in zip(runs, texts, strict=True)}


def _texts(values: np.ndarray, form: str) -> list[str]:
    return ["–" if np.isnan(value) else form.format(value) for value in values]


def evenly(length: int, most: int) -> np.ndarray:
    """Return at most `most` indices, evenly spaced from 0 to length - 1."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))
