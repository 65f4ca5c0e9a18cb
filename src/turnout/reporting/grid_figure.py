"""Draw a grid as a line or as heat maps, and a search as its trials along each axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.core.checks import DataError
from turnout.reporting.grid import Search, Sweep, are_numbers, written
from turnout.reporting.range import Range
from turnout.reporting.style import INK, PALETTE, SIZE, STRONG, dress, new_figure, new_panels, ramp

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3


def grid_figure(sweep: Sweep) -> Figure:
    """Return the figure of every point; the best is ringed.

    Raises:
        DataError: where no point has a finite figure.
    """
    if not any(math.isfinite(score.value) for score in sweep.scores.values()):
        raise DataError(f"no point of the grid has a finite figure of {sweep.measure}")
    axes = list(sweep.axes)
    if len(axes) == 1:
        figure = new_figure()
        _line(figure.subplots(), sweep, axes[0])
        return figure
    down, across, *further = axes
    panels = [dict(zip(further, values, strict=True)) for values in product(*(sweep.axes[axis] for axis in further))]
    columns = min(_COLUMNS, len(panels))
    width = max(SIZE[0] if columns == 1 else 3.4, 0.75 * len(sweep.axes[across]) + 1.2)
    figure, grid = new_panels(len(panels), columns, width, 0.42 * len(sweep.axes[down]) + 1.1)
    for axes_of_panel, fixed in zip(grid, panels, strict=True):
        _map(axes_of_panel, sweep, down, across, fixed)
    return figure


def _line(axes: Axes, sweep: Sweep, axis: str) -> None:
    """Draw figures over the values of one axis, and every seed as a dot."""
    values = sweep.axes[axis]
    numbers = are_numbers(values)
    x = list(values) if numbers else list(range(len(values)))
    scale, y = sweep.measure.scale, [_finite(sweep, name) for name in sweep.points]
    axes.plot(x, [scale * value for value in y], color=PALETTE[0], linewidth=1.6, marker="o")
    for at, name in zip(x, sweep.points, strict=True):
        seeds = [scale * figure for figure in sweep.figures[name].values() if math.isfinite(figure)]
        axes.plot([at] * len(seeds), seeds, linestyle="", marker=".", color=PALETTE[0], alpha=0.4)
    best = list(sweep.points).index(sweep.ranking[0])
    axes.plot(x[best], scale * y[best], marker="o", markersize=13, markerfacecolor="none", markeredgecolor=INK)
    if numbers and min(x) > 0 and max(x) > 20 * min(x):
        axes.set_xscale("log")
    axes.set_xticks(x, [written(value) for value in values])
    axes.minorticks_off()
    dress(axes, axis, sweep.measure.title)


def _map(axes: Axes, sweep: Sweep, down: str, across: str, fixed: Mapping[str, Any]) -> None:
    """Draw figures over the values of two axes: darker is better."""
    values = _values(sweep, down, across, fixed)
    shown = _goodness(sweep, values)
    limits = _goodness(sweep, np.array([score.value for score in sweep.scores.values()]))
    axes.imshow(
        shown,
        aspect="auto",
        cmap=ramp(most="80"),
        interpolation="nearest",
        vmin=np.nanmin(limits),
        vmax=np.nanmax(limits),
    )
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, sweep.measure.number(value), ha="center", va="center", color=STRONG, fontsize=10)
    best = sweep.points[sweep.ranking[0]]
    if _holds(best, fixed):
        row, column = _positions(sweep, (down, across), best)
        axes.add_patch(_ring(row, column))
    title = ", ".join(f"{axis} = {written(value)}" for axis, value in fixed.items())
    dress(axes, across, down, title=title)
    axes.set_xticks(range(len(sweep.axes[across])), [written(value) for value in sweep.axes[across]])
    axes.set_yticks(range(len(sweep.axes[down])), [written(value) for value in sweep.axes[down]])
    axes.grid(visible=False)


def _finite(sweep: Sweep, name: str) -> float:
    """Return the figure of a point; NaN where there is none, or it is infinite."""
    value = sweep.scores[name].value if name in sweep.scores else math.nan
    return value if math.isfinite(value) else math.nan


def _values(sweep: Sweep, down: str, across: str, fixed: Mapping[str, Any]) -> np.ndarray:
    """Return the figures over two axes, where the others are fixed; NaN where there is none."""
    values = np.full((len(sweep.axes[down]), len(sweep.axes[across])), np.nan)
    for name, point in sweep.points.items():
        if name in sweep.scores and _holds(point, fixed):
            values[_positions(sweep, (down, across), point)] = sweep.scores[name].value
    return values


def _goodness(sweep: Sweep, values: np.ndarray) -> np.ndarray:
    """Return figures so that more is better; NaN where they are not finite."""
    return np.where(np.isfinite(values), -values if sweep.measure.less_is_better else values, np.nan)


def _holds(point: Mapping[str, Any], fixed: Mapping[str, Any]) -> bool:
    """Return whether a point has these values."""
    return all(point[axis] == value for axis, value in fixed.items())


def _positions(sweep: Sweep, axes: Sequence[str], point: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the position of a point along some axes."""
    return tuple(sweep.axes[axis].index(point[axis]) for axis in axes)


def _ring(row: int, column: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.47, row - 0.45), 0.94, 0.9, fill=False, edgecolor=STRONG, linewidth=1.8)


def search_figure(result: Search) -> Figure:
    """Return one panel of figures against trials and one for each axis; the best trial is ringed.

    Raises:
        DataError: where no trial has a finite figure.
    """
    if not any(math.isfinite(value) for value in result.best_so_far):
        raise DataError(f"no trial has a finite figure of {result.measure}")
    panels = len(result.axes) + 1
    figure, (first, *others) = new_panels(panels, 2 if panels in (2, 4) else 3, 3.4, 2.8)
    _trials(first, result)
    for axes, axis in zip(others, result.axes, strict=True):
        _axis(axes, result, axis)
    return figure


def _trials(axes: Axes, result: Search) -> None:
    """Draw figures in the order of the trials, and the best so far as a step."""
    numbers = list(range(len(result.points)))
    _dots(axes, result, numbers)
    best = [result.measure.scale * value for value in result.best_so_far]
    axes.step(numbers, best, where="post", color=PALETTE[1], linewidth=1.6)
    dress(axes, "trial (line: best so far)", result.measure.title)


def _axis(axes: Axes, result: Search, axis: str) -> None:
    """Draw figures against the values of an axis, with logarithms where it was searched so."""
    among = result.space[axis]
    values = [point[axis] for point in result.points.values()]
    if isinstance(among, Range):
        _dots(axes, result, values)
        if among.log:
            axes.set_xscale("log")
    else:
        texts = list(map(written, among))
        _dots(axes, result, [texts.index(written(value)) for value in values])
        axes.set_xticks(range(len(texts)), texts)
    dress(axes, axis, result.measure.title)


def _dots(axes: Axes, result: Search, x: Sequence[float]) -> None:
    """Draw a dot for each trial that has a figure, and a ring around the best."""
    scale, best = result.measure.scale, result.best_point
    y = {name: scale * score.value for name, score in result.scores.items() if math.isfinite(score.value)}
    at = dict(zip(result.points, x, strict=True))
    axes.plot(
        [at[name] for name in y], list(y.values()), linestyle="", marker="o", markersize=5, color=PALETTE[0], alpha=0.7
    )
    axes.plot(at[best], y[best], marker="o", markersize=12, markerfacecolor="none", markeredgecolor=INK)
