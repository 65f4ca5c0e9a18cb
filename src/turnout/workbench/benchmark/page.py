"""Write the page of the benchmark: the table of all rows, average ranks, and accuracy against absence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from turnout.reporting.page import draw, environment, render_page, write_page
from turnout.results.statistics import Measured, number
from turnout.workbench.advise.advice import Participation
from turnout.workbench.benchmark.cells import Version
from turnout.workbench.benchmark.pictures import absence_figure, ranks_figure
from turnout.workbench.benchmark.runs import ACCURACIES, FIGURES
from turnout.workbench.benchmark.standings import RANKED, Standing, Table, leads

PARTICIPATION = {
    "num_clients": "clients", "rate": "mean rate", "spread": "spread of rates", "burst": "rounds of a visit",
    "absence": "longest absence", "drift": "drift", "absent": "absent clients", "tau_max": "tau_max", "tau_avg": "tau_avg",
}  # fmt: skip
"""The columns of the table of participation by figure, with their titles."""


def write(tables: Sequence[Table], version: Version, path: Path) -> Path:
    """Write the page of rows, compared by each of the figures `RANKED`, and return its path.

    Raises:
        ConfigurationError: if matplotlib or Jinja2 is not installed.
    """
    table, by_client = tables
    page = render_page(
        "benchmark.html",
        title=f"Participation benchmark {version.name}",
        lead=_lead(tables, version),
        participation_titles=list(PARTICIPATION.values()),
        titles=[
            *(title for figure in RANKED for title in (_title(figure), "difference (points)", "adjusted p", "rank")),
            *(_title(name) for name in FIGURES if name not in RANKED),
        ],
        lines=_lines(tables),
        baselines=version.baselines,
        ranks=[(FIGURES[each.figure], *_ranks(each, version)) for each in tables],
        undefined=[(rule, name, why) for rule, row in table.undefined.items() for name, why in row.items()],
        edges=[
            (rule, name, ", ".join(standing.edges))
            for rule, row in _everyone(tables).items() for name, standing in row.items() if standing.edges
        ],
        reference=version.reference,
        participation=_participation(table),
        drawings=[
            *(draw(f"Average ranks by {FIGURES[each.figure]}",
                   "Lines join rules that do not differ at the level 0.05; the bar is that difference.",
                   "Average rank of each rule, with the critical difference.", partial(ranks_figure, each))
              for each in tables),
            draw("Accuracy against absence",
                 "Accuracy on own examples, means over cells: all clients, and those absent in more than 80 % of rounds.",
                 "Accuracy of each rule at all clients and at absent clients.", lambda: absence_figure(by_client)),
        ],
        settings={}, environment=environment(),
    )  # fmt: skip
    return write_page(path, page)


def _ranks(table: Table, version: Version) -> tuple[list[str], list[tuple[str, str, list[tuple[str, bool]]]]]:
    """Return the groups of cells, and lines of rule, average rank, and its lead in each group with whether it is better."""
    groups = {f"cells with rates {_related(kind)}": kind for kind in dict.fromkeys(cell.rates for cell in table.cells)}
    cells = [table.cells, *([cell for cell in table.cells if cell.rates == kind] for kind in groups.values())]
    found = [leads(table, version.reference, group) for group in cells]
    rules = [*table.ranks, *sorted({rule for each in found for rule in each} - table.ranks.keys())]
    shown = [
        {rule: (f"{lead.gap.points} ({lead.ahead} of {lead.cells})", lead.gap.is_better) for rule, lead in each.items()}
        for each in found
    ]
    return ["all cells", *groups], [
        (
            rule,
            f"{table.ranks[rule]:.2f}" if rule in table.ranks else "–",
            [each.get(rule, ("–", False)) for each in shown],
        )
        for rule in rules
    ]


def _related(rates: str) -> str:
    return "unrelated to data and speed" if rates == "unrelated" else f"related to {rates}"


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


def _title(figure: str) -> str:
    return FIGURES[figure] + (" (%)" if figure in ACCURACIES else "")


def _everyone(tables: Sequence[Table]) -> dict[str, dict[str, Standing]]:
    """Return a standing of each rule and baseline in each cell, by rule and by cell."""
    everyone: dict[str, dict[str, Standing]] = {}
    for table in tables:
        for rule, row in table.everyone.items():
            everyone[rule] = {**row, **everyone.get(rule, {})}
    return everyone


def _lines(tables: Sequence[Table]) -> list[tuple[str, str, str, list[tuple[str, bool]]]]:
    """Return the lines of the table of all rows: rule, cell, rates, and figures with whether they are better."""
    lines, everyone = [], _everyone(tables)
    for cell in tables[0].cells:
        for rule, row in everyone.items():
            if cell.name not in row:
                continue
            values = []
            for table in tables:
                standing = table.everyone.get(rule, {}).get(cell.name)
                values += [("–", False)] * 4 if standing is None else _ranked(standing, table.figure)
            others = [(_shown(name, row[cell.name].figures.get(name)), False) for name in FIGURES if name not in RANKED]
            lines.append((rule, cell.name, cell.rates, [*values, *others]))
    return lines


def _ranked(standing: Standing, figure: str) -> list[tuple[str, bool]]:
    """Return a ranked figure, its difference from the reference, the adjusted p-value, and the rank."""
    gap, rank = standing.gap, standing.rank
    difference, p = ("–", math.nan) if gap is None else (gap.points, gap.p)
    shown_p = "–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
    shown_rank = "–" if math.isnan(rank) else f"{rank:g}"
    shown = _shown(figure, standing.figures[figure])
    return [(shown, standing.is_better), (difference, False), (shown_p, False), (shown_rank, False)]


def _shown(name: str, figure: Measured | None) -> str:
    """Return a mean with its standard deviation."""
    if figure is None:
        return "–"
    if name in ACCURACIES:
        return f"{100 * figure.mean:.1f}" + ("" if figure.std is None else f" ± {100 * figure.std:.1f}")
    return number(figure.mean)


def _lead(tables: Sequence[Table], version: Version) -> str:
    """Return the first sentences of the page."""
    cells, budget = len(tables[0].cells), version.tuning_budget[tables[0].cells[0].tier]
    rules = _everyone(tables).keys() - set(version.baselines)
    found = [
        f"In {len(table.nobody)} of {cells} cells no rule is significantly better than {version.reference} by"
        f" {FIGURES[table.figure]}{_critical(table)}."
        for table in tables
    ]
    return (
        f"{len(rules)} rules in {cells} cells of version {version.name}, {len(version.seeds)} seeds each, with"
        f" the same tuning budget of {budget:,} client updates per cell. {' '.join(found)}"
    )


def _critical(table: Table) -> str:
    """Return the critical difference of ranks in words."""
    if table.critical is None:
        return ""
    return f"; average ranks that differ by less than {table.critical:.2f} do not differ significantly"
