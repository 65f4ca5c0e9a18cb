"""Lines and bands over the seeds of an algorithm: the middle and the spread of a recorded column, round by round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnout.reporting.records import RunRecord
from turnout.reporting.style import evenly

MOST_POINTS = 300  # of a line; more cannot be seen

Samples = list[tuple[np.ndarray, np.ndarray]]
"""Rounds and values, for each seed."""


def window_of(records: Sequence[RunRecord]) -> int:
    """Return the window of smoothed curves: 3 % of the rounds, as in the figures of the FedAU paper (appendix D.2)."""
    return max(1, round(0.03 * max(record.history.last_round for record in records)))


def band(samples: Samples, window: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rounds, mean and sample standard deviation (0 for one) over all samples in (round - window, round]."""
    if not samples:
        return np.array([]), np.array([]), np.array([])
    rounds, values = (np.concatenate(part) for part in zip(*samples, strict=True))
    order = np.argsort(rounds, kind="stable")
    rounds, values = rounds[order], values[order].astype(np.float64)
    points = np.unique(rounds)
    points = points[evenly(len(points), MOST_POINTS)]
    starts, ends = np.searchsorted(rounds, points - window, "right"), np.searchsorted(rounds, points, "right")
    mean, std = np.full(len(points), np.nan), np.full(len(points), np.nan)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        inside = values[start:end]
        if np.isfinite(inside).all():
            mean[i], std[i] = inside.mean(), inside.std(ddof=1) if len(inside) > 1 else 0.0
    return points, mean, std


def quartile_band(samples: Samples) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rounds at which all seeds were evaluated, and the quartiles over seeds there: low, median, high.

    Where a seed has no finite value there is none (NaN).
    """
    shared = [np.intersect1d(rounds, samples[0][0]) for rounds, _ in samples]
    points = min(shared, key=len)
    points = points[evenly(len(points), MOST_POINTS)]
    values = np.array([values[np.searchsorted(rounds, points)] for rounds, values in samples], dtype=np.float64)
    low, median, high = np.quantile(np.where(np.isfinite(values), values, np.nan), [0.25, 0.5, 0.75], axis=0)
    return points, low, median, high
