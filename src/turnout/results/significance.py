"""Hold the figures of algorithms, and decide which of them are significantly better."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnout.results.column import GAP, column_of
from turnout.results.measure import TO_TARGET
from turnout.results.statistics import LEVEL, Gap, Measured, Quartiles, gap, holm


@dataclass(frozen=True)
class Row:
    """A row of a comparison: the figures of an algorithm over seeds.

    Attributes:
        algorithm: name of the algorithm.
        num_seeds: number of its runs.
        figures: figures over seeds by column key.
        costs: costs of reaching a target by column key.
        by_seed: figures of each seed by column key.
        stopped_by: column whose values ended one of its runs early, if any did.
        window: number of last rounds over which final figures are means; None is the last tenth.
    """

    algorithm: str
    num_seeds: int
    figures: dict[str, Measured]
    costs: Mapping[str, Quartiles] = field(default_factory=dict)
    by_seed: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    window: int | None = None
    stopped_by: str | None = None

    def figure(self, key: str) -> Measured | Quartiles | None:
        """Return a figure or a cost by its column key; None if it is missing."""
        return self.figures.get(key) or self.costs.get(key)


FEWEST = 3
"""The least number of seeds of a test."""


def better(key: str, rows: Sequence[Row]) -> frozenset[str]:
    """Return the algorithms with a significantly better figure in a column.

    In a column of differences from the first algorithm, these are the algorithms that are better than the first one. In other
    columns it is the algorithm that is better than every other one, if there is one. Differences are tested by paired t-tests
    over at least `FEWEST` common seeds, by sign tests if all differences are equal, with the p-values of a column adjusted by
    Holm's method. Costs of reaching a target may be infinite, so that the quartiles of the best algorithm have to be below
    those of every other one.
    """
    if key.startswith(GAP):
        return _better_than_first(key, rows)
    if key in TO_TARGET.values():
        return _least({row.algorithm: row.costs[key] for row in rows if key in row.costs})
    direction = column_of(key).better
    return frozenset() if direction is None else _best(key, rows, direction)


def _better_than_first(key: str, rows: Sequence[Row]) -> frozenset[str]:
    """Return the algorithms that are significantly better than the first one."""
    direction = column_of(key.removeprefix(GAP).partition("_to_")[0]).better
    gaps = {row.algorithm: figure for row in rows if isinstance(figure := row.figures.get(key), Gap)}
    return frozenset(itertools.compress(gaps, _are_ahead(list(gaps.values()), direction)))


def _best(key: str, rows: Sequence[Row], direction: Callable[..., Any]) -> frozenset[str]:
    """Return the algorithm that is significantly better than every other one whose runs did not diverge."""
    known = [row for row in rows if key in row.by_seed and math.isfinite(row.figures[key].mean)]
    if len(known) < 2:
        return frozenset()
    best = direction(known, key=lambda row: row.figures[key].mean)
    gaps = [gap(best.by_seed[key], row.by_seed[key]) for row in known if row is not best]
    return frozenset([best.algorithm] if all(_are_ahead(gaps, direction)) else [])


def _are_ahead(gaps: Sequence[Gap | None], direction: Callable[..., Any] | None) -> list[bool]:
    """Return which differences are significant and in the direction of better figures, ``max`` or ``min``."""
    adjusted = holm([math.nan if figure is None or figure.num < FEWEST else figure.p for figure in gaps])
    return [
        p < LEVEL and figure is not None and (figure.mean > 0.0 if direction is max else figure.mean < 0.0)
        for figure, p in zip(gaps, adjusted, strict=True)
    ]


def _least(figures: dict[str, Quartiles]) -> frozenset[str]:
    """Return the algorithm whose quartiles are below those of every other one; none with only one seed."""
    if len(figures) < 2 or any(figure.num < 2 for figure in figures.values()):
        return frozenset()
    least = min(figures, key=lambda name: figures[name].high)
    below = all(figures[least].high < figure.low for name, figure in figures.items() if name != least)
    return frozenset([least] if below else [])


def legend(keys: Sequence[str]) -> str:
    """Say what bold figures in these columns mean."""
    if keys and set(keys) <= {*TO_TARGET.values(), "reached"}:
        return "bold: quartiles below those of every other algorithm"
    than = "every other algorithm"
    if any(key.startswith(GAP) for key in keys):
        than += ", or for differences, than the first algorithm"
    return f"bold: significantly better than {than} (paired t-tests over seeds, Holm's correction, p < {LEVEL:g})"
