"""The middle and the spread of a figure over seeds, some of which may have none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Quartiles:
    """A figure over seeds: its quartiles, infinite where too few seeds have the figure.

    The quantile of share q is the mean of the smallest values with at least q of all values below or equal, and with
    more than q; where only one of the two is finite, it is that one. A median is therefore finite as soon as half of
    the seeds have the figure, and infinite where more than half lack it.

    Attributes:
        low, median, high: the quantiles of 1/4, 1/2 and 3/4.
        num_finite, num: how many seeds have the figure, of how many.

    Reference: Hyndman and Fan, "Sample quantiles in statistical packages", The American Statistician 50, 1996,
    definition 2.
    """

    low: float
    median: float
    high: float
    num_finite: int
    num: int

    @classmethod
    def over(cls, values: Sequence[float]) -> Quartiles:
        """Return the quartiles of one value per seed, infinite where a seed has none."""
        ordered = sorted(values)
        low, median, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
        return cls(low, median, high, sum(map(math.isfinite, ordered)), len(ordered))


def _quantile(ordered: list[float], share: float) -> float:
    position = share * len(ordered)
    pair = (ordered[math.ceil(position) - 1], ordered[math.floor(position)])
    finite = [value for value in pair if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else pair[0]
