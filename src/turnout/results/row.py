"""Hold the figures of an algorithm in a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from turnout.results.statistics import Measured, Quartiles


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
