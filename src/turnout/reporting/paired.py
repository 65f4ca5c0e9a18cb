"""How far an algorithm is from the first one, seed by seed: with one seed, both see the same clients, data and presence."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from turnout.reporting.column import Gap, margin
from turnout.reporting.student import p_value


def gap(values: Mapping[int, float], reference: Mapping[int, float]) -> Gap | None:
    """Compare figures by seed with those of the reference: ``t = sqrt(n) mean(d) / std(d)``, with n - 1 degrees of freedom.

    None where fewer than two seeds are shared.

    >>> found = gap({0: 0.81, 1: 0.84, 2: 0.78}, {0: 0.80, 1: 0.82, 2: 0.75})
    >>> round(found.mean, 3), round(found.p, 4), round(found.margin, 3)
    (0.02, 0.0742, 0.025)
    """
    seeds = sorted(values.keys() & reference.keys())
    if len(seeds) < 2:
        return None
    differences = np.array([values[seed] - reference[seed] for seed in seeds])
    with np.errstate(invalid="ignore"):
        mean, std = float(differences.mean()), float(differences.std(ddof=1))
    if not math.isfinite(mean) or (not mean and not std):
        return Gap(mean, std, margin(std, len(seeds)), math.nan)
    t = abs(mean) / std * math.sqrt(len(seeds)) if std else math.inf
    return Gap(mean, std, margin(std, len(seeds)), p_value(t, len(seeds) - 1))
