"""Compute tails and quantiles of Student's t distribution, without SciPy."""

from __future__ import annotations

import math
from functools import cache


def p_value(t: float, degrees: int) -> float:
    r"""Return how often \|T\| > t, T of Student's distribution, by its finite sums for whole degrees of freedom.

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
    r"""Return the t with \|T\| <= t at a probability of `level`, by bisection of `p_value`.

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
