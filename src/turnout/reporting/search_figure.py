"""The picture of a search: the best so far, and what every trial gave along each axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.core.checks import DataError
from turnout.reporting.grid import Search, written
from turnout.reporting.range import Range
from turnout.reporting.style import INK, PALETTE, dress, new_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
