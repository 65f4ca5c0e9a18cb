"""Summarize figures over seeds: means, confidence intervals, quartiles and paired t-tests, without SciPy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np


@dataclass(frozen=True)
class Measured:
    """A figure over seeds.

    Attributes:
        mean: over seeds.
        std: sample standard deviation (divisor n - 1); None for a single seed.
        margin: half the width of the 95 % confidence interval of the mean, ``t std / sqrt(n)`` with the quantile t of
            Student's distribution of n - 1 degrees of freedom; None for a single seed.
    """

    mean: float
    std: float | None
    margin: float | None = None

    @classmethod
    def over(cls, values: Sequence[float]) -> Measured:
        """Summarize one value per seed; the mean is NaN if a run diverged."""
        with np.errstate(invalid="ignore"):
            std = float(np.std(values, ddof=1)) if len(values) > 1 else None
            return cls(float(np.mean(values)), std, None if std is None else margin(std, len(values)))


def margin(std: float, number: int) -> float:
    """Return half the width of the 95 % confidence interval of a mean of `number` values."""
    return quantile(0.95, number - 1) * std / math.sqrt(number)


LEVEL = 0.05
"""The level of tests: a difference is significant if its adjusted p-value is below."""

_ROUNDING = 1e-14
"""Relative differences that are those of rounding."""


@dataclass(frozen=True)
class Gap(Measured):
    """The mean difference from another algorithm over paired seeds.

    Its margin is None if all differences are equal, because no spread is known then.

    Attributes:
        p: p-value of a two-sided paired t-test, or of a sign test if all differences are equal; NaN if they are zero or one
            is NaN. It may be adjusted for several tests.
        num: number of pairs.
    """

    p: float = math.nan
    num: int = 0

    @property
    def is_better(self) -> bool:
        """True if the difference is positive and significant."""
        return self.mean > 0 and self.p < LEVEL

    @property
    def points(self) -> str:
        """The difference in hundredths with its margin, ``+1.2 ± 0.4``."""
        return f"{100 * self.mean:+.1f}" + ("" if self.margin is None else f" ± {100 * self.margin:.1f}")


def gap(values: Mapping[int, float], reference: Mapping[int, float]) -> Gap | None:
    """Compare figures with a reference by a paired t-test: ``t = sqrt(n) mean(d) / std(d)``, n - 1 degrees of freedom.

    If all differences are equal and not zero, their standard deviation of zero says nothing about other seeds: accuracies are
    multiples of one over the number of examples, so that few seeds easily have equal differences. The p-value is that of the
    exact sign test, ``2^(1 - n)``, 0.25 for three seeds and below 0.05 for six or more.

    None with fewer than two common seeds.

    >>> result = gap({0: 0.81, 1: 0.84, 2: 0.78}, {0: 0.80, 1: 0.82, 2: 0.75})
    >>> round(result.mean, 3), round(result.p, 4), round(result.margin, 3)
    (0.02, 0.0742, 0.025)
    """
    seeds = sorted(values.keys() & reference.keys())
    if len(seeds) < 2:
        return None
    mine = np.array([values[seed] for seed in seeds])
    with np.errstate(invalid="ignore"):
        differences = mine - [reference[seed] for seed in seeds]
        differences[np.abs(differences) < _ROUNDING * np.abs(mine)] = 0.0
        mean, std = float(differences.mean()), float(differences.std(ddof=1))
    if not std > _ROUNDING * abs(mean):  # or one is NaN
        return Gap(mean, std, None, 2.0 ** (1 - len(seeds)) if mean and math.isfinite(mean) else math.nan, len(seeds))
    t = abs(mean) / std * math.sqrt(len(seeds))
    return Gap(mean, std, margin(std, len(seeds)), p_value(t, len(seeds) - 1), len(seeds))


def adjusted(gaps: Mapping[str, Gap]) -> dict[str, Gap]:
    """Return differences with p-values that are adjusted for their number by Holm's method."""
    p_values = holm([each.p for each in gaps.values()])
    return {name: replace(each, p=p) for (name, each), p in zip(gaps.items(), p_values, strict=True)}


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values of several tests, adjusted so that the chance of any false rejection stays below the level.

    With m tests in ascending order of p, the adjusted value of the i-th is ``max over j <= i of min(1, (m - j + 1) p_j)``.
    Tests without a p-value (NaN) keep none and do not count.

    >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]

    Reference: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.
    """
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=lambda i: p_values[i])
    adjusted, largest = [math.nan] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def p_value(t: float, degrees: int) -> float:
    r"""Return ``P(|T| > t)`` for T of Student's distribution, by its finite sums for whole degrees of freedom.

    With ``tan a = t / sqrt(degrees)``, ``P(|T| <= t)`` is for even degrees ``sin a (1 + 1/2 cos^2 a + 1 3 / (2 4) cos^4 a +
    ...)``, of degrees / 2 terms, and for odd ones ``2 / pi (a + sin a (cos a + 2/3 cos^3 a + 2 4 / (3 5) cos^5 a + ...))``,
    of (degrees - 1) / 2 terms.

    >>> round(p_value(2.776445, 4), 6)
    0.05

    Reference: Abramowitz and Stegun, "Handbook of mathematical functions", 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(degrees // 2):
        total += term
        term *= cosine**2 * (2 * k + 1 + odd) / (2 * k + 2 + odd)
    return max(0.0, 1.0 - (2 / math.pi * (angle + sine * total) if odd else sine * total))


@cache
def quantile(level: float, degrees: int) -> float:
    r"""Return the t with ``P(|T| <= t) = level``, by bisection of `p_value`.

    >>> round(quantile(0.95, 4), 3), round(quantile(0.95, 1), 3)
    (2.776, 12.706)
    """
    low, high = 0.0, 1.0
    while p_value(high, degrees) > 1.0 - level:
        high *= 2.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle, degrees) > 1.0 - level else (low, middle)
    return high


@dataclass(frozen=True)
class Quartiles:
    """The quartiles of a figure over seeds, infinite where too few seeds have the figure.

    The q-quantile is the mean of two values: the smallest one with at least a share q of all values below or equal, and the
    smallest one with more than q. If only one of the two is finite, it is that one. A median is therefore finite if at least
    half of the seeds have the figure.

    Attributes:
        low, median, high: the quantiles of 1/4, 1/2 and 3/4.
        num_finite, num: number of seeds with a figure, and of all seeds.

    Reference: Hyndman and Fan, "Sample quantiles in statistical packages", The American Statistician 50, 1996,
    definition 2.
    """

    low: float
    median: float
    high: float
    num_finite: int
    num: int

    @property
    def values(self) -> tuple[float, float, float]:
        """The three quantiles."""
        return self.low, self.median, self.high

    @classmethod
    def over(cls, values: Sequence[float]) -> Quartiles:
        """Return the quartiles of one value per seed; infinite for a seed without a figure."""
        ordered = sorted(values)
        low, median, high = (_quantile(ordered, share) for share in (0.25, 0.5, 0.75))
        return cls(low, median, high, sum(map(math.isfinite, ordered)), len(ordered))

    def shown(self, scale: float = 1.0) -> str:
        """Format median and quartiles, ``25 (19 to 31)``, or ``not reached`` if the median is infinite."""
        if not math.isfinite(self.median):
            return "not reached"
        middle, low, high = (number(scale * value) for value in (self.median, self.low, self.high))
        return middle if self.num == 1 else f"{middle} ({low} to {high if math.isfinite(self.high) else '∞'})"


def _quantile(ordered: list[float], share: float) -> float:
    position = share * len(ordered)
    pair = (ordered[math.ceil(position) - 1], ordered[math.floor(position)])
    finite = [value for value in pair if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else pair[0]


def number(value: float) -> str:
    """Format a number with about three significant digits, and all digits before the decimal point."""
    if not math.isfinite(value) or value == round(value):
        return f"{value:,.0f}"
    if abs(value) < 0.01:  # such as gradient norms
        return f"{value:.2g}"
    return f"{value:,.{max(0, min(3, 2 - math.floor(math.log10(abs(value)))))}f}"
