"""Compute the leads of rules over the reference in several cells: which rule is better, and for which participation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from turnout.results.statistics import Gap, gap, holm
from turnout.workbench.benchmark.cells import Cell
from turnout.workbench.benchmark.standings import SHARE, Table


@dataclass(frozen=True)
class Lead:
    """The lead of a rule over the reference in several cells.

    Attributes:
        gap: the paired difference of means over cells, one pair for each seed.
        p: p-value of the difference, adjusted by Holm's method over the rules; NaN without one.
        ahead: number of cells in which the mean over seeds is larger than that of the reference.
        cells: number of cells in which the rule is defined.
    """

    gap: Gap
    p: float
    ahead: int
    cells: int

    @property
    def is_better(self) -> bool:
        """True if the rule is significantly better than the reference in these cells."""
        return self.gap.mean > 0 and self.p < 0.05


def leads(table: Table, reference: str, cells: Sequence[Cell]) -> dict[str, Lead]:
    """Return the lead of each rule that is defined in most of these cells, by the ranked figure, the largest first.

    Seeds are the units of the test, because cells with the same data share splits and initial models. A lead holds for these
    cells: it is no estimate for other data.
    """
    names = [cell.name for cell in cells if cell.name in table.standings.get(reference, {})]
    gaps, ahead = dict[str, Gap](), dict[str, list[bool]]()
    for rule, row in table.standings.items():
        shared = [name for name in names if name in row]
        if rule == reference or not shared or len(shared) < SHARE * len(names):
            continue
        mine, theirs = (_means(table, each, shared) for each in (rule, reference))
        if (found := gap(mine, theirs)) is not None:
            gaps[rule] = found
            ahead[rule] = [
                (standing.gap.mean if standing.gap else 0.0) > 0 for name in shared if (standing := row[name])
            ]
    adjusted = dict(zip(gaps, holm([each.p for each in gaps.values()]), strict=True))
    order = sorted(gaps, key=lambda rule: -gaps[rule].mean if math.isfinite(gaps[rule].mean) else math.inf)
    return {rule: Lead(gaps[rule], adjusted[rule], sum(ahead[rule]), len(ahead[rule])) for rule in order}


def _means(table: Table, rule: str, names: Sequence[str]) -> dict[int, float]:
    """Return the mean of a rule over cells by seed, for the seeds that all cells have."""
    values = [table.standings[rule][name].values for name in names]
    return {seed: fmean(each[seed] for each in values) for seed in set.intersection(*map(set, values))}
