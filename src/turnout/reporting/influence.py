"""Summarise how much each client is heard: contributions, staleness, and influence against the fair share.

Influence is a client's share of the weights of all steps; the fair share is 1 / N. Runs by the clock record both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.reporting.records import RunRecord
from turnout.reporting.style import evenly

MOST_ROWS = 20

_COUNTED = {"contributions": ("contributions", "{:,.0f}"), "mean_staleness": ("mean staleness", "{:.2f}")}


@dataclass(frozen=True)
class ClientTable:
    """Single clients, a row each, those who contributed most first.

    Attributes:
        seed: of whose runs.
        num_clients: of how many clients these are.
        titles: of the columns.
        rows: the cells.
    """

    seed: int
    num_clients: int
    titles: list[str]
    rows: list[list[str]]


def records_influence(record: RunRecord) -> bool:
    """Return whether a run says how much influence each client had."""
    names = record.history.clients.column_names
    return "influence" in names and not np.isnan(record.history.client_column("influence")).all()


def influence_figures(record: RunRecord) -> dict[str, float]:
    """Return mean staleness of all reports; least and most influence, in fair shares; and how much is beyond fair shares.

    That last one is ``sum_n max(influence_n - 1/N, 0)``: 0 where all are heard alike, 1 - 1/N where one client decides
    alone. Empty where a run did not record influence.
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
    """Return clients of the first seed, at most 20, evenly spaced by how much they contributed; None without influence.

    What is the same under all algorithms, as contributions on one schedule are, is one column for all.
    """
    complete = [record for record in records if records_influence(record)]
    if not complete:
        return None
    runs = [record for record in complete if record.seed == complete[0].seed]
    n = len(runs[0].history.clients)
    order = np.argsort(-np.nan_to_num(runs[0].history.client_column("contributions")), kind="stable")
    shown = order[evenly(n, MOST_ROWS)]
    columns = {"client": [str(client) for client in shown]}
    for name in _COUNTED:
        columns |= _counted(runs, name, shown)
    columns["fair share (%)"] = [f"{100 / n:.3g}"] * len(shown)
    for record in runs:
        shares = 100 * record.history.client_column("influence")[shown]
        columns[f"influence (%), {record.algorithm}"] = _texts(shares, "{:.3g}")
    return ClientTable(runs[0].seed, n, list(columns), [list(row) for row in zip(*columns.values(), strict=True)])


def _counted(runs: Sequence[RunRecord], name: str, shown: np.ndarray) -> dict[str, list[str]]:
    """Return a column of some clients for each run by its title, or one for all if they are alike."""
    title, form = _COUNTED[name]
    values = [record.history.client_column(name) for record in runs]
    if all(np.array_equal(values[0], other, equal_nan=True) for other in values):
        return {title: _texts(values[0][shown], form)}
    texts = [_texts(column[shown], form) for column in values]
    return {f"{title}, {record.algorithm}": text for record, text in zip(runs, texts, strict=True)}


def _texts(values: np.ndarray, form: str) -> list[str]:
    return ["–" if np.isnan(value) else form.format(value) for value in values]
