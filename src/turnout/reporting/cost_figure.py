"""The figure of what accuracy costs: the same curves against rounds, bytes sent and simulated time, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.core.checks import DataError
from turnout.record.schema import COSTS
from turnout.reporting.bands import band
from turnout.reporting.records import RunRecord, by_algorithm
from turnout.reporting.style import (
    INK,
    SIZE,
    draw_band,
    dress,
    label,
    legend,
    new_figure,
    plain_ticks,
    scale_of,
    styles,
)
from turnout.reporting.target import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AGAINST = {
    "rounds": ("round", 1.0),
    "bytes": ("sent so far, both ways (MB)", 1e-6),
    "simulated_seconds": ("simulated time (s)", 1.0),
    "bytes_up": ("sent by clients so far (MB)", 1e-6),
}
"""What curves are drawn against: the label of the axis, and the scale of its numbers."""

_WIDEST = 12.0  # inches: letters of a wider figure are too small in a page


def cost_figure(records: Sequence[RunRecord], metric: str, target: Target | None = None) -> Figure:
    """Draw `metric` against rounds, against bytes sent until then, and against simulated time where runs recorded it.

    For each algorithm the mean over seeds, and a band of one standard deviation; its costs at a round are means over
    seeds too. The dashed line is the target. Where one algorithm costs more than ten times another, as rounds that wait for
    everyone do beside a buffer that waits for nobody, the axis of that cost is logarithmic.

    Raises:
        DataError: where no run recorded the metric.
    """
    looks, groups = styles(records), by_algorithm(records)
    keys = [key for key in ("rounds", *COSTS) if any(_knows(record, key) for record in records)]
    figure, drawn = new_figure(min(SIZE[0] * len(keys), _WIDEST)), {}
    panels = figure.subplots(1, len(keys), sharey=True, squeeze=False)[0]
    for axes, key in zip(panels, keys, strict=True):
        drawn |= {name: looks[name] for name, group in groups.items() if _draw(axes, group, metric, key, looks[name])}
        if key != "rounds":
            _spread_out(axes)
        if target is not None:
            axes.axhline(scale_of(metric) * target.value, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        dress(axes, AGAINST[key][0], label(metric) if key == "rounds" else "")
    if not drawn:
        raise DataError(f"no run recorded {metric}")
    legend(figure, drawn)
    return figure


def _knows(record: RunRecord, key: str) -> bool:
    """Return whether a run recorded what curves are to be drawn against."""
    return key == "rounds" or record.history.spent(key) is not None


def _draw(axes: Axes, group: Sequence[RunRecord], metric: str, key: str, look: dict[str, Any]) -> bool:
    """Draw one algorithm's curve; return whether it has one."""
    complete = [record for record in group if _knows(record, key) and metric in record.history.column_names]
    rounds, mean, std = band([record.history.column(metric) for record in complete], 1)
    if not np.isfinite(mean).any():
        return False
    scale, unit = scale_of(metric), AGAINST[key][1]
    x = rounds if key == "rounds" else unit * np.mean([spent_at(r, key, rounds) for r in complete], axis=0)
    draw_band(axes, x, scale * (mean - std), scale * mean, scale * (mean + std), look)
    return True


def _spread_out(axes: Axes) -> None:
    """Take a logarithmic axis where one curve is ten times as long as another."""
    curves = [np.asarray(line.get_xydata()) for line in axes.lines]
    drawn_at = [curve[np.isfinite(curve[:, 1]), 0] for curve in curves]
    ends = [x.max() for x in drawn_at]
    if ends and max(ends) > 10 * min(ends) and min(x.min() for x in drawn_at) > 0:
        axes.set_xscale("log")
        plain_ticks(axes.xaxis, 200)


def spent_at(record: RunRecord, cost: str, rounds: np.ndarray) -> np.ndarray:
    """Return what a run had spent until the end of each of `rounds`."""
    spent = record.history.spent(cost)
    assert spent is not None
    return np.interp(rounds, record.history.column("round")[0], spent)
