"""Compute figures of fairness over clients, from accuracies or other values of each client.

Clients without a value (NaN, e.g. without test examples) are left out; `fairness` returns their number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from turnout.core.checks import ConfigurationError, refuse, share


def worst(values: Any, fraction: float = 0.1) -> float:
    """Return the mean over the lowest `fraction` of ``values [N]``.

    The mean is over ``ceil(fraction * n)`` of the n clients with a value, at least one; NaN if no client has a value.

    Raises:
        ConfigurationError: if `fraction` is not in (0, 1], or `values` has more than one axis.

    Example:
        >>> worst([0.5, 0.9, 0.7, 0.8], fraction=0.5)
        0.6
    """
    share("fraction", fraction)
    known = _known(values)
    # 0.07 * 100 is slightly more than 7 in floating point, and must not become 8 clients.
    number = math.ceil(fraction * len(known) - 1e-9)
    return float(np.sort(known)[:number].mean()) if number else math.nan


def spread(values: Any) -> float:
    """Return the standard deviation over clients, ``sqrt(mean_k (v_k - mean v)^2)`` of ``values [N]``.

    It divides by n, because the clients are the whole population. NaN if no client has a value.

    Example:
        >>> spread([1.0, 3.0])
        1.0
    """
    known = _known(values)
    return float(known.std()) if len(known) else math.nan


def jain(values: Any) -> float:
    """Return Jain's fairness index of ``values [N]``, all >= 0::

        J = (sum_k v_k)^2 / (n sum_k v_k^2)

    It is 1 if all values are equal, including zero, and 1/n if one client has all; NaN if no client has a value.

    Raises:
        ConfigurationError: if a value is negative or infinite.

    Example:
        >>> jain([1.0, 1.0]), jain([1.0, 0.0])
        (1.0, 0.5)

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
    share = known / largest  # the index is scale-free; squares of tiny values would underflow
    return float(share.sum() ** 2 / (len(share) * (share**2).sum()))


def fairness(accuracies: Any) -> dict[str, float]:
    """Return all figures of ``accuracies [N]`` of clients, as plain numbers by name.

    They are ``mean`` (every client counts once), ``spread``, ``worst`` (mean of the worst 10 %), ``jain``, ``clients``
    (number of clients with a value) and ``missing`` (number of clients without).
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
