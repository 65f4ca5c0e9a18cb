"""Plot the score of each client in a federation, alone, and with all examples in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.reporting import style
from turnout.reporting.curves import styles
from turnout.results.gains import needed
from turnout.results.names import label, scale_of
from turnout.results.records import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def gains_figure(records: Sequence[RunRecord]) -> Figure:
    """Plot a row of dots for each client, one for each algorithm, from the client that gains most to the one that loses most.

    Raises:
        DataError: if no run of a baseline is among the records.
    """
    found, looks = needed(records), styles(records)
    shown = found.shown
    figure = style.new_figure(height=max(style.SIZE[1], 1.0 + 0.19 * len(shown)))
    axes, height = figure.subplots(), np.arange(len(shown), 0, -1)
    scores = {name: scale_of(found.column) * values[shown] for name, values in found.scores.items()}
    together = np.stack(list(scores.values()))
    axes.hlines(height, together.min(0), together.max(0), color=style.INK, alpha=0.35, linewidth=1)
    for name, values in scores.items():
        style.scatter(axes, values, height, 26, 0.9, looks[name])
    style.dress(axes, label(found.column), "")
    style.name_rows(axes.yaxis, height, [found.clients[client] for client in shown])
    style.legend(figure, {name: looks[name] for name in scores})
    return figure
