"""The figure of what accuracy costs: the same curves against rounds, bytes sent and simulated time, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import DataError
from turnout.reporting.bands import band
from turnout.reporting.records import RunRecord, by_algorithm
from turnout.reporting.style import INK, SIZE, dress, label, legend, new_figure, plain_ticks, scale_of, styles
from turnout.reporting.target import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGAINST = {
    "rounds": ("round", 1.0),
    "bytes": ("sent so far, both ways (MB)", 1e-6),
    "simulated_seconds": ("simulated time (s)", 1.0),
}
"""What curves are drawn against: the label of the axis, and the scale of its numbers."""


def cost_figure(records: Sequence[RunRecord], metric: str, target: Target | None = None) -> Figure:
    """`metric` against rounds, against bytes sent until then, and against simulated time where runs recorded it.

    For each algorithm the mean over seeds, and a band of one standard deviation; its costs at a round are means over
    seeds too. The dashed line is the target. Where one algorithm costs more than ten times another, as rounds that wait for
    everyone do beside a buffer that waits for nobody, the axis of that cost is logarithmic.

    Raises:
        DataError: where no run recorded the metric.
    """
    looks, groups = styles(records), by_algorithm(records)
    known = {key: [r for r in records if key == "rounds" or r.history.spent(key) is not None] for key in AGAINST}
    keys = [key for key, having in known.items() if having]
    figure = new_figure(SIZE[0] * len(keys))
    drawn, scale = {}, scale_of(metric)
    panels = figure.subplots(1, len(keys), sharey=True, squeeze=False)[0]
    for axes, key in zip(panels, keys, strict=True):
        title, unit = AGAINST[key]
        for algorithm, group in groups.items():
            having = [r for r in group if r in known[key] and metric in r.history.column_names]
            rounds, mean, std = band([record.history.column(metric) for record in having], 1)
            if not np.isfinite(mean).any():
                continue
            x = rounds if key == "rounds" else unit * np.mean([spent_at(r, key, rounds) for r in having], axis=0)
            axes.plot(x, scale * mean, linewidth=1.6, **looks[algorithm])
            low, high = scale * (mean - std), scale * (mean + std)
            axes.fill_between(x, low, high, color=looks[algorithm]["color"], alpha=0.15, linewidth=0)
            drawn[algorithm] = looks[algorithm]
        places = [line.get_xdata()[np.isfinite(line.get_ydata())] for line in axes.lines]
        ends = [place.max() for place in places]
        if key != "rounds" and ends and max(ends) > 10 * min(ends) and min(place.min() for place in places) > 0:
            axes.set_xscale("log")
            plain_ticks(axes.xaxis, 200)
        if target is not None:
            axes.axhline(scale * target.value, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        dress(axes, title, label(metric) if key == "rounds" else "")
    if not drawn:
        raise DataError(f"no run recorded {metric}")
    legend(figure, drawn)
    return figure


def spent_at(record: RunRecord, cost: str, rounds: np.ndarray) -> np.ndarray:
    """What a run had spent until the end of each of `rounds`."""
    spent = record.history.spent(cost)
    assert spent is not None
    return np.interp(rounds, record.history.column("round")[0], spent)
