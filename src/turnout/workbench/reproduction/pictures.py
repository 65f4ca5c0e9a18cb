"""Plot the runs of a reproduction, with one set of axes per panel."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from turnout.core.checks import DataError
from turnout.reporting import style
from turnout.reporting.curves import AGAINST, draw_curve, draw_each
from turnout.reporting.style import INK, MARKERS, SIZE, Look, looks_of
from turnout.results.measure import Measure
from turnout.results.names import label, scale_of
from turnout.results.records import RunRecord
from turnout.workbench.reproduction.declaration import Curve, Panel
from turnout.workbench.reproduction.outcome import Line, Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_WIDTH, _HEIGHT = 3.6, 2.7
"""Inches of one set of axes."""
_APART = 0.1
"""Inches between neighboring sets of axes."""
_LETTERS, _LINE = 44, 0.17
"""Letters that fit into the width of one set of axes, and the height of a line of a title in inches."""


def curve_figure(outcome: Outcome, curve: Curve) -> Figure:
    """Plot a recorded column in every panel: the median over seeds and a band from quartile to quartile.

    Without a band, only the run of the first seed is plotted. The dashed line is the target.

    Raises:
        DataError: if no run recorded both columns.
    """
    looks = looks_of(outcome.reproduction.algorithms)
    drawn: dict[str, Look] = {}
    panels = [panel for panel in outcome.panels if outcome.records[panel.name]]
    titles = _wrapped([panel.title for panel in panels], beside=5)
    figure, grid = _grid(titles, alike="y" if scale_of(curve.metric) == 100.0 else "")
    for axes, panel, title in zip(grid, panels, titles, strict=True):
        drawn |= _curve(axes, outcome, panel, curve, looks)
        style.dress(axes, AGAINST[curve.against][0], label(curve.metric), title=title)
        style.few_ticks(axes.xaxis, whole=curve.against == "rounds")
        _scale(axes, curve.log)
    if not drawn:
        raise DataError(f"no run recorded both {curve.metric} and {curve.against}")
    _name_outer(grid)
    style.legend(figure, {name: look for name, look in looks.items() if name in drawn})
    return figure


def _curve(axes: Axes, outcome: Outcome, panel: Panel, curve: Curve, looks: dict[str, Look]) -> dict[str, Look]:
    """Draw the curves and the target of a panel; return the looks of the algorithms that were drawn."""

    def draw(runs: Sequence[RunRecord], look: Look) -> bool:
        return draw_curve(axes, runs if curve.band else runs[:1], curve.metric, look, curve.against, window=None)

    drawn = draw_each(outcome.records[panel.name], draw, looks)
    if (target := outcome.target(panel)) is not None and target.metric == curve.metric:
        style.draw_target(axes, scale_of(target.metric) * target.value)
    return drawn


def measure_figure(outcome: Outcome, measure: Measure) -> Figure:
    """Plot one measure in every panel: a dot for our median, a line from quartile to quartile, a diamond for the paper.

    An arrow at the end of a line stands for runs that did not reach the target.

    Raises:
        DataError: if no panel has a finite figure.
    """
    looks = looks_of(outcome.reproduction.algorithms)
    lines = [line for line in outcome.lines() if measure in line.ours]
    if not any(math.isfinite(line.ours[measure].median) for line in lines):
        raise DataError(f"no run has a finite figure of {measure}")
    groups = {panel: list(rows) for panel, rows in groupby(lines, key=attrgetter("panel"))}
    longest = max(len(line.algorithm) for line in lines)
    titles = _wrapped([panel.titled(measure.metric is None) for panel in groups], beside=longest)
    height = 0.9 + 0.32 * max(map(len, map(outcome.reproduction.of, groups)))
    figure, grid = _grid(titles, height, alike="x" if measure.scale == 100.0 else "")
    for axes, rows, title in zip(grid, groups.values(), titles, strict=True):
        _dots(axes, rows, measure, looks)
        style.dress(axes, measure.title, "", title=title)
        # With a shared scale matplotlib would label only the last row, which may have fewer panels.
        axes.xaxis.set_tick_params(labelbottom=True)
        style.few_ticks(axes.xaxis)
    _name_outer(grid)
    return figure


def paper_number(figure: object) -> float | None:
    """Parse the leading number of a paper's figure, ``77.3`` of ``"77.3 ± 0.3"``; None if there is none."""
    number = re.match(r"\s*[-+]?\d+(\.\d+)?", str(figure))
    return float(number[0]) if number else None


def _grid(titles: Sequence[str], height: float = _HEIGHT, alike: str = "") -> tuple[Figure, list[Axes]]:
    """Return a figure with a set of axes for each title; the last row may have fewer.

    Args:
        titles: titles of the axes.
        height: height of one set of axes, in inches.
        alike: ``"x"`` or ``"y"`` for an axis with a shared scale.
    """
    columns = min(_COLUMNS, max(1, len(titles)))
    lines = max((title.count("\n") for title in titles), default=0)
    apart = _APART if len(titles) > 1 else 0.0
    width, shared = max(SIZE[0] / columns, _WIDTH), {"sharex": alike == "x", "sharey": alike == "y"}
    figure, grid = style.new_panels(len(titles), columns, width, height + apart + _LINE * lines, **shared)
    if apart:
        figure.set_layout_engine("constrained", w_pad=apart, h_pad=apart)
    return figure, grid


def _wrapped(titles: Sequence[str], beside: int) -> list[str]:
    """Wrap titles to the width of their axes, whose tick labels at the left have `beside` letters."""
    most = max(16, _LETTERS - beside)
    return ["\n".join(style.evenly_wrapped(title, most)) for title in titles]


def _name_outer(grid: Sequence[Axes]) -> None:
    """Remove the labels of inner axes: only the first column keeps y labels, and the lowest axes keep x labels."""
    columns = min(_COLUMNS, len(grid))
    for i, axes in enumerate(grid):
        if i % columns:
            axes.set_ylabel("")
        if i + columns < len(grid):
            axes.set_xlabel("")


def _scale(axes: Axes, log: str) -> None:
    """Make axes logarithmic."""
    for name in log:
        axes.set(**{f"{name}scale": "log"})
        low, high = getattr(axes, f"get_{name}lim")()
        style.plain_ticks(getattr(axes, f"{name}axis"), high / low)


def _dots(axes: Axes, lines: Sequence[Line], measure: Measure, looks: dict[str, Look]) -> None:
    """Draw one row for each algorithm."""
    edge = _edge(lines, measure)
    for row, line in enumerate(lines):
        look, quartiles = looks[line.algorithm], line.ours[measure].values
        color = look["color"]
        low, median, high = (measure.scale * q if math.isfinite(q) else edge for q in quartiles)
        axes.plot([low, high], [row, row], color=color, linewidth=2, alpha=0.5, solid_capstyle="round")
        if not all(map(math.isfinite, quartiles)):
            axes.plot(edge, row, marker=">" if measure.less_is_better else "<", color=color, alpha=0.5, markersize=6)
        if math.isfinite(quartiles[1]):
            axes.plot(median, row, marker=look.get("marker", MARKERS[0]), color=color, markersize=6)
        if (number := paper_number(line.paper.get(measure))) is not None:
            axes.plot(number, row, marker="D", markersize=7, markerfacecolor="none", markeredgecolor=INK)
    axes.set_yticks(range(len(lines)), [line.algorithm for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)


def _edge(lines: Sequence[Line], measure: Measure) -> float:
    """Return the position of infinite figures, which is that of the worst finite one."""
    known = [measure.scale * q for line in lines for q in line.ours[measure].values if math.isfinite(q)]
    known += [number for line in lines if (number := paper_number(line.paper.get(measure))) is not None]
    worst = max if measure.less_is_better else min
    return worst(known, default=0.0)
