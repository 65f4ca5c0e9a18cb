"""Plot a grid as a line or heat maps, and the trials of a search against each axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from turnout.core.checks import DataError
from turnout.core.display import printable
from turnout.reporting.style import INK, PALETTE, SIZE, STRONG, dress, new_figure, new_panels, ramp
from turnout.results.grid import Search, Sweep, are_numbers, written
from turnout.results.range import Range

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3


def grid_figure(sweep: Sweep) -> Figure:
    """Plot the figure of every point; a ring or frame marks the best one.

    Raises:
        DataError: if no point has a finite figure.
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
    """Plot figures over the values of one axis, and every seed as a dot."""
    values, scale = sweep.axes[axis], sweep.measure.scale
    numbers = are_numbers(values)
    x = list(values) if numbers else list(range(len(values)))
    scores = np.array([sweep.scores[name].value if name in sweep.scores else math.nan for name in sweep.points])
    y = scale * np.where(np.isfinite(scores), scores, math.nan)
    axes.plot(x, y, color=PALETTE[0], linewidth=1.6, marker="o")
    for at, name in zip(x, sweep.points, strict=True):
        seeds = [scale * figure for figure in sweep.figures[name].values() if math.isfinite(figure)]
        axes.plot([at] * len(seeds), seeds, linestyle="", marker=".", color=PALETTE[0], alpha=0.4)
    best = list(sweep.points).index(sweep.ranking[0])
    axes.plot(x[best], y[best], marker="o", markersize=13, markerfacecolor="none", markeredgecolor=INK)
    if numbers and min(x) > 0 and max(x) > 20 * min(x):
        axes.set_xscale("log")
    axes.set_xticks(x, _labels(values), parse_math=False)
    axes.minorticks_off()
    dress(axes, axis, sweep.measure.title)


def _map(axes: Axes, sweep: Sweep, down: str, across: str, fixed: Mapping[str, Any]) -> None:
    """Plot figures over two axes as a heat map, with fixed values of the other axes; darker is better."""
    from matplotlib.patches import Rectangle

    rows, columns = sweep.axes[down], sweep.axes[across]
    cells = {
        name: (rows.index(point[down]), columns.index(point[across]))
        for name, point in sweep.points.items()
        if fixed.items() <= point.items()
    }
    values = np.full((len(rows), len(columns)), np.nan)
    for name in cells.keys() & sweep.scores.keys():
        values[cells[name]] = sweep.scores[name].value
    sign = -1 if sweep.measure.less_is_better else 1
    limits = [sign * score.value for score in sweep.scores.values() if math.isfinite(score.value)]  # of all panels
    axes.imshow(
        np.where(np.isfinite(values), sign * values, np.nan), aspect="auto", cmap=ramp(most="80"), interpolation="nearest",
        vmin=min(limits), vmax=max(limits),
    )  # fmt: skip
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, sweep.measure.number(value), ha="center", va="center", color=STRONG, fontsize=10)
    if best := cells.get(sweep.ranking[0]):
        corner = best[1] - 0.47, best[0] - 0.45
        axes.add_patch(Rectangle(corner, 0.94, 0.9, fill=False, edgecolor=STRONG, linewidth=1.8))
    title = ", ".join(f"{axis} = {written(value)}" for axis, value in fixed.items())
    dress(axes, across, down, title=title)
    axes.set_xticks(range(len(columns)), _labels(columns), parse_math=False)
    axes.set_yticks(range(len(rows)), _labels(rows), parse_math=False)
    axes.grid(visible=False)


def search_figure(result: Search) -> Figure:
    """Plot figures against trials, and against each axis; a ring marks the best trial.

    Raises:
        ConfigurationError: if no trial has a finite figure.
    """
    panels = len(result.axes) + 1
    figure, (first, *others) = new_panels(panels, 2 if panels in (2, 4) else 3, 3.4, 2.8)
    _trials(first, result)
    for axes, axis in zip(others, result.axes, strict=True):
        _axis(axes, result, axis)
    return figure


def _trials(axes: Axes, result: Search) -> None:
    """Plot figures in the order of the trials, and the best so far as a step function."""
    numbers = list(range(len(result.points)))
    _dots(axes, result, numbers)
    best = [result.measure.scale * value for value in result.best_so_far]
    axes.step(numbers, best, where="post", color=PALETTE[1], linewidth=1.6)
    dress(axes, "trial (line: best so far)", result.measure.title)


def _axis(axes: Axes, result: Search, axis: str) -> None:
    """Plot figures against the values of an axis, on a logarithmic scale for logarithmic ranges."""
    among = result.space[axis]
    values = [point[axis] for point in result.points.values()]
    if isinstance(among, Range):
        _dots(axes, result, values)
        if among.log:
            axes.set_xscale("log")
    else:
        texts = list(map(written, among))
        _dots(axes, result, [texts.index(written(value)) for value in values])
        axes.set_xticks(range(len(texts)), _labels(among), parse_math=False)
    dress(axes, axis, result.measure.title)


def _dots(axes: Axes, result: Search, x: Sequence[float]) -> None:
    """Draw a dot for each trial with a figure, and a ring around the best."""
    scale, best = result.measure.scale, result.best_point
    y = {name: scale * score.value for name, score in result.scores.items() if math.isfinite(score.value)}
    at = dict(zip(result.points, x, strict=True))
    axes.plot(
        [at[name] for name in y], list(y.values()), linestyle="", marker="o", markersize=5, color=PALETTE[0], alpha=0.7
    )
    axes.plot(at[best], y[best], marker="o", markersize=12, markerfacecolor="none", markeredgecolor=INK)


def _labels(values: Iterable[Any]) -> list[str]:
    """Return tick labels for the values of an axis, without control characters."""
    return [printable(written(value)) for value in values]
