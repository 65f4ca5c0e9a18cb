"""Write the page of the benchmark: the table of all rows, average ranks, and accuracy against absence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import DataError
from turnout.reporting.page import draw, render_page, write_page
from turnout.reporting.settings import environment
from turnout.reporting.style import GRAY, INK, PALETTE, dress, new_figure
from turnout.results.statistics import Measured, number
from turnout.workbench.advise.participation import Participation
from turnout.workbench.benchmark.cells import Version
from turnout.workbench.benchmark.figures import FIGURES
from turnout.workbench.benchmark.standings import RANKED, Standing, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTICIPATION = {
    "num_clients": "clients", "rate": "mean rate", "spread": "spread of rates", "burst": "rounds of a visit",
    "absence": "longest absence", "drift": "drift", "absent": "absent clients", "tau_max": "tau_max", "tau_avg": "tau_avg",
}  # fmt: skip
"""The columns of the table of participation by figure, with their titles."""

_PERCENT = {"test_accuracy", "worst_tenth", "absent"}


def write(table: Table, version: Version, path: Path) -> Path:
    """Write the page, and return its path.

    Raises:
        ConfigurationError: if matplotlib or Jinja2 is not installed.
    """
    lines = [
        (rule, cell.name, cell.rates, _cells(row[cell.name]), row[cell.name].is_better)
        for cell in table.cells
        for rule, row in table.standings.items()
        if cell.name in row
    ]
    page = render_page(
        "benchmark.html",
        title=f"Participation benchmark {version.name}",
        lead=_lead(table, version),
        participation_titles=list(PARTICIPATION.values()),
        titles=["test accuracy (%)", "difference (points)", "adjusted p", *_titles(), "rank"],
        lines=lines,
        ranks=[(rule, f"{rank:.2f}", len(table.ranked_in)) for rule, rank in table.ranks.items()],
        undefined=[(rule, name, why) for rule, row in table.undefined.items() for name, why in row.items()],
        edges=[
            (rule, name, ", ".join(standing.edges))
            for rule, row in table.standings.items() for name, standing in row.items() if standing.edges
        ],
        reference=version.reference,
        participation=_participation(table),
        drawings=[
            draw("Average ranks", "Lines join rules that do not differ at the level 0.05; the bar is that difference.",
                 "Average rank of each rule, with the critical difference.", lambda: ranks_figure(table)),
            draw("Accuracy against absence", "Means over cells: all clients, and those absent in more than 80 % of rounds.",
                 "Test accuracy of each rule against the accuracy at absent clients.", lambda: absence_figure(table)),
        ],
        settings={}, environment=environment(),
    )  # fmt: skip
    return write_page(path, page)


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
    """Plot for each ranked rule the accuracy at absent clients beside the accuracy at all, as means over cells.

    Rules far below the others are written at the edge.

    Raises:
        DataError: if no cell has absent clients.
    """
    points = {
        rule: point for rule in table.ranks if (point := _means(table.standings[rule], table.ranked_in)) is not None
    }
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
        axes.plot(overall, place, "o", color=PALETTE[0], markersize=5, label="" if place else "all clients")
        axes.plot(
            absent,
            place,
            "o",
            color=PALETTE[1],
            markersize=5,
            label="" if place else "clients absent in more than 80 %",
        )
    axes.set_xlim(left=least)
    axes.set_yticks(range(len(rules)), rules, color=INK)
    axes.invert_yaxis()
    axes.legend(loc="lower right", fontsize=7)
    dress(axes, "accuracy (%)", "")
    return figure


def _means(row: Mapping[str, Standing], names: tuple[str, ...]) -> tuple[float, float] | None:
    """Return the mean accuracies at all and at absent clients, in percent, over the cells that have absent clients."""
    known = [row[name].figures for name in names if "absent" in row[name].figures]
    if not known:
        return None
    overall, absent = (100 * float(np.mean([figures[key].mean for figures in known])) for key in (RANKED, "absent"))
    return overall, absent


def _participation(table: Table) -> list[tuple[str, list[str]]]:
    """Return figures of the participation of each cell with the first seed; none where speeds decide who takes part."""
    lines = []
    for cell in table.cells:
        values = ["–"] * len(PARTICIPATION)
        if cell.rates != "speed":
            seen = Participation.of(cell.present)
            values = [f"{value:.3g}" for name, value in asdict(seen).items() if name in PARTICIPATION]
        lines.append((cell.name, values))
    return lines


def _titles() -> list[str]:
    return [title + (" (%)" if name in _PERCENT else "") for name, title in FIGURES.items() if name != RANKED]


def _cells(standing: Standing) -> list[str]:
    """Return the cells of a line of the table."""
    figures, gap = standing.figures, standing.gap
    difference = "–" if gap is None else f"{100 * gap.mean:+.1f} ± {100 * (gap.margin or 0.0):.1f}"
    p = "–" if standing.p != standing.p else "< 0.001" if standing.p < 0.001 else f"{standing.p:.3f}"
    others = [_shown(name, figures.get(name)) for name in FIGURES if name != RANKED]
    return [_shown(RANKED, figures[RANKED]), difference, p, *others, f"{standing.rank:g}"]


def _shown(name: str, figure: Measured | None) -> str:
    """Return a mean with its standard deviation."""
    if figure is None:
        return "–"
    if name in _PERCENT:
        return f"{100 * figure.mean:.1f}" + ("" if figure.std is None else f" ± {100 * figure.std:.1f}")
    return number(figure.mean)


def _lead(table: Table, version: Version) -> str:
    """Return the first sentences of the page."""
    cells, critical = len(table.cells), ""
    if table.critical is not None:
        critical = f" Average ranks that differ by less than {table.critical:.2f} are not told apart."
    return (
        f"{len(table.standings)} rules in {cells} cells of version {version.name}, {len(version.seeds)} seeds each, with the"
        f" same tuning budget of {version.tuning_budget:,} client updates per cell. In {len(table.nobody)} of {cells} cells"
        f" no rule is significantly better than {version.reference}.{critical}"
    )
