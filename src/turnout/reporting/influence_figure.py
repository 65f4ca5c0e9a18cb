"""A picture of who is heard: each client's influence against how much it reported, in fair shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import DataError
from turnout.reporting.influence import recorded
from turnout.reporting.records import RunRecord, by_algorithm
from turnout.reporting.style import INK, dress, evenly, legend, new_figure, plain_ticks, scatter, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_DOTS = 2000  # of an algorithm


def influence_figure(records: Sequence[RunRecord]) -> Figure:
    """Share of the weights against share of the reports, a dot for each client, the clients of all seeds together.

    Both in fair shares, 1 / N. On the diagonal clients count as often as they report, on the horizontal line all count
    alike. Clients who never contributed are not shown.

    Raises:
        DataError: where no run recorded influence.
    """
    figure, looks = new_figure(), styles(records)
    axes, drawn, seen = figure.subplots(), {}, []
    for algorithm, group in by_algorithm(records).items():
        pairs = [_shares(record) for record in group if recorded(record)]
        if not pairs:
            continue
        reports, influence = np.concatenate(pairs, axis=1)
        order = np.argsort(reports, kind="stable")[evenly(len(reports), MOST_DOTS)]
        scatter(axes, reports[order], influence[order], 14, 0.6, looks[algorithm])
        drawn[algorithm] = looks[algorithm]
        seen += [reports, influence]
    if not drawn:
        raise DataError("no run went by the clock, so there is no influence")
    low, high = min(map(np.min, seen)) / 1.3, max(map(np.max, seen)) * 1.3
    axes.axhline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot([low, high], [low, high], color=INK, linewidth=1, linestyle=(0, (1, 2)))
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis, high / low)
    dress(axes, "share of the reports (fair share = 1)", "influence (fair share = 1)")
    legend(figure, drawn)
    return figure


def _shares(record: RunRecord) -> np.ndarray:
    """Rows share of reports and influence, in fair shares, of the clients who have some of both, ``[2, n]``."""
    contributions, influence = (record.history.client_column(name) for name in ("contributions", "influence"))
    heard = (contributions > 0) & (influence > 0)
    n = len(contributions)
    return np.stack([n * contributions[heard] / contributions.sum(), n * influence[heard]])
