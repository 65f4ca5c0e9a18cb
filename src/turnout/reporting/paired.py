"""How far an algorithm is from the first one, seed by seed: with one seed, both see the same clients, data and presence."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from turnout.reporting.column import Gap


def gap(values: Mapping[int, float], reference: Mapping[int, float]) -> Gap | None:
    """Compare figures by seed with those of the reference: ``t = sqrt(n) mean(d) / std(d)``, with n - 1 degrees of freedom.

    None where fewer than two seeds are shared.

    >>> found = gap({0: 0.81, 1: 0.84, 2: 0.78}, {0: 0.80, 1: 0.82, 2: 0.75})
    >>> round(found.mean, 3), round(found.p, 4)
    (0.02, 0.0742)
    """
    seeds = sorted(values.keys() & reference.keys())
    if len(seeds) < 2:
        return None
    differences = np.array([values[seed] - reference[seed] for seed in seeds])
    with np.errstate(invalid="ignore"):
        mean, std = float(differences.mean()), float(differences.std(ddof=1))
    if not math.isfinite(mean) or (not mean and not std):
        return Gap(mean, std, math.nan)
    t = abs(mean) / std * math.sqrt(len(seeds)) if std else math.inf
    return Gap(mean, std, p_value(t, len(seeds) - 1))


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
