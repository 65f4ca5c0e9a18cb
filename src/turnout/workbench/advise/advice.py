"""Find the cells of the benchmark whose participation is nearest, and the rules that lead in them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from turnout.workbench.advise.participation import Participation
from turnout.workbench.benchmark.cells import Cell, Version
from turnout.workbench.benchmark.standings import Standing, Table

NUM_CELLS, NUM_RULES = 3, 3


def nearest(seen: Participation, version: Version, tier: str = "small") -> list[tuple[Cell, float]]:
    """Return the cells with the most similar participation and their distances, in standard deviations over all cells.

    Cells about speed are left out, because a trace does not contain speeds.
    """
    cells = [
        cell for cell in version.of_tier(tier) if "pace" not in cell.settings and "population" not in cell.settings
    ]
    vectors = np.array([Participation.of(cell.present).vector for cell in cells])
    distances = np.linalg.norm((vectors - seen.vector) / vectors.std(axis=0).clip(1e-9), axis=1)
    order = np.argsort(distances, kind="stable")[:NUM_CELLS]
    return [(cells[index], float(distances[index])) for index in order]


def leaders(table: Table, cells: Iterable[Cell]) -> list[str]:
    """Return the rules that are ahead of the plain mean in these cells by most, best first.

    Differences that are not significant count as zero. Where those of two rules are equal, the average rank over all cells
    decides. Of rules with the same figures, such as one rule with another memory, only the first is returned.
    """
    names = [cell.name for cell in cells]
    distinct: dict[tuple[float, ...], tuple[float, str]] = {}
    for rule, row in table.standings.items():
        found = [row[name] for name in names if name in row and row[name].gap is not None]
        means = tuple(each.gap.mean for each in found if each.gap is not None)
        significant = sum(mean for mean, each in zip(means, found, strict=True) if each.p < 0.05)
        if found:
            distinct.setdefault(means, (significant / len(found), rule))
    key = {rule: (-gain, table.ranks.get(rule, math.inf)) for gain, rule in distinct.values()}
    return sorted(key, key=lambda rule: key[rule])[:NUM_RULES]


def standing(table: Table, cell: Cell) -> list[tuple[str, Standing]]:
    """Return the rules of a cell that are significantly better than the plain mean, best first."""
    rows = [(rule, row[cell.name]) for rule, row in table.standings.items() if cell.name in row]
    return sorted((each for each in rows if each[1].is_better), key=lambda each: each[1].rank)
