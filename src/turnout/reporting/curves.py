"""Plot recorded columns as curves against rounds, bytes sent or simulated time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.core.checks import DataError, known_name
from turnout.record.schema import COSTS
from turnout.reporting import style
from turnout.reporting.style import Look
from turnout.results.influence import evenly
from turnout.results.measure import Target
from turnout.results.names import label, scale_of
from turnout.results.records import RunRecord, by_algorithm, recorded_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AGAINST = {
    "rounds": ("round", 1.0),
    "bytes": ("sent so far, both ways (MB)", 1e-6),
    "simulated_seconds": ("simulated time (s)", 1.0),
    "bytes_up": ("sent by clients so far (MB)", 1e-6),
}
"""The quantities of the horizontal axis: label and scale."""

MOST_POINTS = 300  # of a line; more cannot be distinguished


def styles(records: Sequence[RunRecord]) -> dict[str, Look]:
    """Return the look of each algorithm by order of appearance, which is the same in all figures of the same runs."""
    return style.looks_of(by_algorithm(records))


def draw_each(
    records: Sequence[RunRecord], draw: Callable[[list[RunRecord], Look], bool], looks: Mapping[str, Look] | None = None
) -> dict[str, Look]:
    """Draw the runs of each algorithm, and return the looks of the algorithms that were drawn.

    Args:
        records: the runs.
        draw: draws the runs of one algorithm; returns False if they lack the data.
        looks: looks of the algorithms; None assigns them by order of appearance.
    """
    looks, groups = styles(records) if looks is None else looks, by_algorithm(records)
    return {name: looks[name] for name, group in groups.items() if draw(group, looks[name])}


_WIDEST = 12.0  # inches; the letters of a wider figure are too small on a page

Samples = list[tuple[np.ndarray, np.ndarray]]
"""Rounds and values, for each seed."""


def curves(records: Sequence[RunRecord], metric: str, smooth: bool = False) -> Figure:
    """Plot a recorded column against rounds: the mean over seeds of each algorithm, and a band of one standard deviation.

    With `smooth`, mean and standard deviation at a round are over all samples of all seeds in the window that ends there and
    spans 3 % of the rounds, as in the figures of the FedAU paper (appendix D.2). A gap means that a run has no finite value.
    A loss that varies by more than a factor of 30 has a logarithmic axis.

    Raises:
        ConfigurationError: if no run has the column.
        DataError: if no run recorded a value.
    """
    known_name("column", metric, recorded_columns(records))
    window = window_of(records) if smooth else 1
    figure = style.new_figure()
    axes = figure.subplots()
    drawn = draw_each(records, lambda group, look: draw_curve(axes, group, metric, look, window=window))
    if not drawn:
        raise DataError(f"no run recorded {metric}")
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.lines])
    if metric.endswith("loss") and 0 < 30 * np.nanmin(values) < np.nanmax(values):
        axes.set_yscale("log")
    elif smooth:
        _zoom_in(axes)
    if metric == "pool":
        style.few_ticks(axes.yaxis, whole=True)
    style.dress(axes, "round", label(metric))
    style.legend(figure, drawn)
    return figure


def cost_figure(records: Sequence[RunRecord], metric: str, target: Target | None = None) -> Figure:
    """Plot `metric` against rounds, against bytes sent so far, and against simulated time where runs recorded it.

    Lines are means over seeds, bands one standard deviation; the costs at a round are means over seeds as well. The dashed
    line is the target. The axis of a cost is logarithmic if one algorithm costs more than ten times as much as another,
    such as synchronous rounds beside a buffer.

    Raises:
        DataError: if no run recorded the metric.
    """
    keys = [key for key in ("rounds", *COSTS) if any(_has_cost(record, key) for record in records)]
    figure, drawn = style.new_figure(min(style.SIZE[0] * len(keys), _WIDEST)), {}
    panels = figure.subplots(1, len(keys), sharey=True, squeeze=False)[0]
    for axes, key in zip(panels, keys, strict=True):
        drawn |= draw_each(records, lambda group, look, axes=axes, key=key: draw_curve(axes, group, metric, look, key))
        if key != "rounds":
            _use_log_scale(axes)
        if target is not None:
            style.draw_target(axes, scale_of(metric) * target.value)
        style.dress(axes, AGAINST[key][0], label(metric) if key == "rounds" else "")
    if not drawn:
        raise DataError(f"no run recorded {metric}")
    style.legend(figure, drawn)
    return figure


def draw_curve(
    axes: Axes, runs: Sequence[RunRecord], metric: str, look: Look, against: str = "rounds", window: int | None = 1
) -> bool:
    """Plot a column of the runs of one algorithm, as a line with a band if there are several runs.

    Args:
        axes: axes to draw on.
        runs: runs of the algorithm, one for each seed.
        metric: the column.
        look: look of the algorithm.
        against: a key of `AGAINST`.
        window: rounds of the window of mean and standard deviation; None plots median and quartiles over seeds, at the
            rounds that all seeds have in common.

    Returns:
        False if the runs have no finite value, so that nothing was drawn.
    """
    complete = [record for record in runs if record.history.has_values(metric) and _has_cost(record, against)]
    samples = [record.history.column(metric) for record in complete]
    if not samples:
        return False
    rounds, low, middle, high = quartile_band(samples) if window is None else band(samples, window)
    if not np.isfinite(middle).any():
        return False
    x, scale = _horizontal(complete, against, rounds, np.median if window is None else np.mean), scale_of(metric)
    style.draw_line(axes, x, scale * middle, look)
    if len(complete) > 1:
        style.draw_band(axes, x, scale * low, scale * high, look)
    return True


def _horizontal(runs: Sequence[RunRecord], against: str, rounds: np.ndarray, average: Callable[..., Any]) -> np.ndarray:
    """Return the positions of rounds on the horizontal axis: themselves, or an average over runs of what they cost."""
    if against == "rounds":
        return rounds
    spent = [(run.history.column("round")[0], cost) for run in runs if (cost := run.history.spent(against)) is not None]
    return AGAINST[against][1] * average([np.interp(rounds, *each) for each in spent], axis=0)


def window_of(records: Sequence[RunRecord]) -> int:
    """Return the window of smoothed curves: 3 % of the rounds, as in the figures of the FedAU paper (appendix D.2)."""
    return max(1, round(0.03 * max(record.history.last_round for record in records)))


def band(samples: Samples, window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rounds, and the mean over all samples in (round - window, round], less and plus their standard deviation.

    The low end comes first, then the mean and the high end. A single sample has no deviation. Rounds in whose window not all
    runs were evaluated are left out, such as those after the end of a run that stopped early: a mean over the other seeds
    would not continue the curve. All rounds count if there are no others.
    """
    known = [np.unique(rounds) for rounds, _ in samples]
    rounds, values = (np.concatenate(part) for part in zip(*samples, strict=True))
    order = np.argsort(rounds, kind="stable")
    rounds, values = rounds[order], values[order].astype(np.float64)
    points = np.unique(rounds)
    covered = [np.diff(np.searchsorted(each, [points - window, points], "right"), axis=0)[0] > 0 for each in known]
    points = common if len(common := points[np.all(covered, axis=0)]) else points
    points = points[evenly(len(points), MOST_POINTS)]
    starts, ends = np.searchsorted(rounds, points - window, "right"), np.searchsorted(rounds, points, "right")
    mean, std = np.full(len(points), np.nan), np.full(len(points), np.nan)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        inside = values[start:end]
        if np.isfinite(inside).all():
            mean[i], std[i] = inside.mean(), inside.std(ddof=1) if len(inside) > 1 else 0.0
    return points, mean - std, mean, mean + std


def quartile_band(samples: Samples) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the rounds at which all seeds were evaluated, and the quartiles over seeds: low, median, high.

    They are NaN if a seed has no finite value.
    """
    shared = [np.intersect1d(rounds, samples[0][0]) for rounds, _ in samples]
    points = min(shared, key=len)
    points = points[evenly(len(points), MOST_POINTS)]
    values = np.array([values[np.searchsorted(rounds, points)] for rounds, values in samples], dtype=np.float64)
    low, median, high = np.quantile(np.where(np.isfinite(values), values, np.nan), [0.25, 0.5, 0.75], axis=0)
    return points, low, median, high


def _has_cost(record: RunRecord, against: str) -> bool:
    """Return whether a run recorded the quantity of the horizontal axis."""
    return against == "rounds" or record.history.spent(against) is not None


def _zoom_in(axes: Axes) -> None:
    """Limit the y axis to the values after a quarter of the rounds, if these span less than half of the whole range.

    Converged curves could not be distinguished otherwise; `cost_figure` shows their beginning.
    """
    lines = [np.asarray(line.get_xydata(), dtype=np.float64) for line in axes.lines]
    quarter = max(line[:, 0].max() for line in lines) / 4
    values = np.concatenate(lines)
    late = values[values[:, 0] >= quarter, 1]
    low, high, whole = np.nanmin(late), np.nanmax(late), np.nanmax(values[:, 1]) - np.nanmin(values[:, 1])
    if 0 < high - low < 0.5 * whole:
        axes.set_ylim(low - 0.12 * (high - low), high + 0.12 * (high - low))


def _use_log_scale(axes: Axes) -> None:
    """Make the x axis logarithmic if one curve is more than ten times as long as another."""
    points = [np.asarray(line.get_xydata()) for line in axes.lines]
    finite = [curve[np.isfinite(curve[:, 1]), 0] for curve in points]
    ends = [x.max() for x in finite]
    if ends and max(ends) > 10 * min(ends) and min(x.min() for x in finite) > 0:
        axes.set_xscale("log")
        style.plain_ticks(axes.xaxis, 200)
