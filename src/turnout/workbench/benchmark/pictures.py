"""Plot average ranks of rules with the critical difference, and accuracy against absence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import DataError
from turnout.reporting.style import GRAY, INK, PALETTE, dress, new_figure
from turnout.workbench.benchmark.standings import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def ranks_figure(table: Table) -> Figure:
    """Plot average ranks as a critical-difference diagram: lines join rules that do not differ.

    Reference: Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006, section 3.2.4.

    Raises:
        DataError: if there are fewer than two ranked rules.
    """
    if table.critical is None:
        raise DataError("fewer than two rules are defined in the same cells")
    names, values = list(table.ranks), np.array(list(table.ranks.values()))
    figure = new_figure(6.4, 0.22 * len(names) + 1.1)
    axes = figure.subplots()
    places = np.arange(len(names))
    axes.use_sticky_edges = False  # the best rule is at the left end of the bar
    axes.barh([-1], [table.critical], left=values[0], height=0.5, color=GRAY)
    groups = alike(values.tolist(), table.critical)
    for column, (first, last) in enumerate(groups):
        right = values[-1] + 0.15 * (column + 1) * max(1.0, (values[-1] - values[0]) / 10)
        axes.plot([right, right], [first, last], color=INK, linewidth=2.2, solid_capstyle="butt")
    axes.plot(values, places, "o", color=PALETTE[0], markersize=5)
    axes.set_yticks([-1, *places.tolist()], ["critical difference", *names], color=INK)
    axes.invert_yaxis()
    dress(axes, f"average rank over {len(table.ranked_in)} cells (1 is the best)", "")
    return figure


def alike(ranks: Sequence[float], critical: float) -> list[tuple[int, int]]:
    """Return the largest groups of ascending ranks that differ by less than the critical difference, by first and last index.

    >>> alike([1.0, 1.5, 2.2, 4.0], critical=1.0)
    [(0, 1), (1, 2)]
    """
    ends = [max(j for j, rank in enumerate(ranks) if rank - first < critical) for first in ranks]
    groups = [(i, end) for i, end in enumerate(ends) if end > i]
    return [(i, end) for i, end in groups if i == 0 or ends[i - 1] < end]


def absence_figure(table: Table) -> Figure:
    """Plot for each ranked rule the accuracy of absent clients beside that of all clients, as means over cells.

    Rules far below the others are written at the edge.

    Raises:
        DataError: if no cell has absent clients.
    """
    points = {rule: point for rule in table.ranks if (point := _means(table, rule)) is not None}
    if not points:
        raise DataError("no client is absent in more than 80 % of rounds of a cell")
    rules = sorted(points, key=lambda rule: points[rule][1], reverse=True)
    figure = new_figure(6.4, 0.22 * len(rules) + 1.1)
    axes = figure.subplots()
    least = min(min(points[rule]) for rule in rules[: -(-3 * len(rules) // 4)]) - 1.0  # of all but the last quarter
    for place, rule in enumerate(rules):
        overall, absent = points[rule]
        if absent < least:
            axes.annotate(
                f"◀ absent {absent:.1f}, all {overall:.1f}", (least, place), va="center", fontsize=7, color=INK
            )
            continue
        axes.plot([absent, overall], [place, place], color=GRAY, linewidth=1.2, zorder=1)
        labels = ("all clients", "clients absent in more than 80 %")
        for value, color, label in zip(points[rule], PALETTE, labels, strict=False):
            axes.plot(value, place, "o", color=color, markersize=5, label="" if place else label)
    axes.set_xlim(left=least)
    axes.set_yticks(range(len(rules)), rules, color=INK)
    axes.invert_yaxis()
    axes.legend(loc="lower right", fontsize=7)
    dress(axes, "accuracy (%)", "")
    return figure


def _means(table: Table, rule: str) -> tuple[float, float] | None:
    """Return the mean accuracies at all and at absent clients, in percent, over the cells that have absent clients."""
    row = table.standings[rule]
    known = [figures for name in table.ranked_in if "absent" in (figures := row[name].figures)]
    if not known:
        return None
    overall, absent = (
        100 * float(np.mean([figures[key].mean for figures in known])) for key in (table.figure, "absent")
    )
    return overall, absent
