"""Find the cells of the benchmark whose participation is nearest, and the rules that led there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from turnout.workbench.advise.participation import Participation, available_in
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
    vectors = np.array(
        [Participation.of(available_in(cell.experiment(version.reference, {}, 0))).vector for cell in cells]
    )
    distances = np.linalg.norm((vectors - seen.vector) / vectors.std(axis=0).clip(1e-9), axis=1)
    order = np.argsort(distances, kind="stable")[:NUM_CELLS]
    return [(cells[index], float(distances[index])) for index in order]


def leaders(table: Table, cells: Iterable[Cell]) -> list[str]:
    """Return the rules with the largest mean difference from the plain mean in these cells, best first.

    Of rules with the same figures, such as one rule with another memory, only the first is returned.
    """
    names = [cell.name for cell in cells]
    found = {rule: [row[name].gap for name in names if name in row] for rule, row in table.standings.items()}
    means = {rule: float(np.mean([each.mean for each in gaps if each])) for rule, gaps in found.items() if any(gaps)}
    distinct = {mean: rule for rule, mean in reversed(means.items())}
    return [rule for _, rule in sorted(distinct.items(), reverse=True)][:NUM_RULES]


def standing(table: Table, cell: Cell) -> list[tuple[str, Standing]]:
    """Return the rules of a cell that are significantly better than the plain mean, best first."""
    rows = [(rule, row[cell.name]) for rule, row in table.standings.items() if cell.name in row]
    return sorted((each for each in rows if each[1].is_better), key=lambda each: each[1].rank)
