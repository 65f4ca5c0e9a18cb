"""How evenly a model serves its clients: figures over client-wise accuracies (or any other value per client).

A client without a value (NaN: it has no test examples) is left out, and `fairness` says how many were.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, refuse


def worst(values: Any, fraction: float = 0.1) -> float:
    """Mean over the worst-served clients, the lowest `fraction` of ``values [N]``.

    That many clients are ``ceil(fraction * n)`` of the n that have a value, so always at least one; NaN if none has.

    Raises:
        ConfigurationError: where `fraction` is not in (0, 1] or `values` is not one row of numbers.
    """
    if not 0.0 < fraction <= 1.0:
        raise refuse("fraction", given=fraction, needed="a share of the clients, 0 < fraction <= 1")
    known = _known(values)
    # 0.07 * 100 is a little more than 7 in floating point: it must not become 8 clients.
    number = math.ceil(fraction * len(known) - 1e-9)
    return float(np.sort(known)[:number].mean()) if number else math.nan


def spread(values: Any) -> float:
    """Return the standard deviation over the clients, ``sqrt(mean_k (v_k - mean v)^2)`` of ``values [N]``.

    It divides by n: the clients are all there are, not a sample. NaN if no client has a value.
    """
    known = _known(values)
    return float(known.std()) if len(known) else math.nan


def jain(values: Any) -> float:
    """Jain's fairness index of ``values [N]``, all >= 0::

        J = (sum_k v_k)^2 / (n sum_k v_k^2)

    1 where all are equal (all zero included), 1/n where one client has everything; NaN if no client has a value.

    Raises:
        ConfigurationError: where a value is negative or infinite.

    Reference: Jain, Chiu and Hawe, "A quantitative measure of fairness and discrimination for resource allocation in
    shared computer systems", DEC-TR-301, 1984.
    """
    known = _known(values)
    if not len(known):
        return math.nan
    if not np.isfinite(known).all() or known.min() < 0:
        raise refuse(
            "values", given=float(known.min()), needed="finite numbers >= 0", instead="Use spread() for others."
        )
    largest = known.max()
    if largest == 0.0:
        return 1.0
    share = known / largest  # the index has no unit; without this, squares of tiny values vanish
    return float(share.sum() ** 2 / (len(share) * (share**2).sum()))


def fairness(accuracies: Any) -> dict[str, float]:
    """All figures over client-wise ``accuracies [N]``: a dictionary of plain numbers.

    ``mean`` (every client counts once), ``spread``, ``worst`` (mean of the worst 10 %), ``jain``, ``clients`` (how many
    have a value) and ``missing`` (how many have none).
    """
    known = _known(accuracies)
    return {
        "mean": float(known.mean()) if len(known) else math.nan,
        "spread": spread(known),
        "worst": worst(known),
        "jain": jain(known),
        "clients": len(known),
        "missing": int(np.size(accuracies)) - len(known),
    }


def _known(values: Any) -> np.ndarray:
    """Return the values that are not NaN, float64."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1:
        raise ConfigurationError(
            f"values: got an array of shape {numbers.shape}, needed one value for each client, [N]"
        )
    return numbers[~np.isnan(numbers)]
