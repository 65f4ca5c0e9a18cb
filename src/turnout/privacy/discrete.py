"""Gaussian noise on the whole numbers, of which clients add shares under masks."""

from __future__ import annotations

import numpy as np
import torch

FINEST, COARSEST = 4.0, 2.0**17
"""Least and largest deviation, in units of the grid.

The sum of n shares of deviation s is no discrete Gaussian, but costs at most ``tau sqrt(P)`` more than one in the inverse of
its noise multiplier, ``tau = 10 sum_{k<n} exp(-2 pi^2 s^2 k / (k + 1)) <= 10 n exp(-pi^2 s^2)``: from s = 4 on less than
``n sqrt(P) 10^-67``, which no floating-point number shows beside it (Kairouz, Liu and Steinke, "The distributed discrete
Gaussian mechanism for federated learning with secure aggregation", ICML 2021, Proposition 14). The largest one bounds the
table that numbers are drawn from.
"""

WIDEST = 12.0
"""No number is drawn beyond so many deviations, where the distribution has 10^-32, less than random numbers resolve."""


def discrete_gaussian(chance: torch.Tensor, deviation: float) -> torch.Tensor:
    """Return whole numbers, float64, with ``P[k] ~ exp(-k^2 / (2 s^2))``, by the inverse of their distribution function.

    Args:
        chance: uniform on (0, 1), float64.
        deviation: s, in units.

    Example:
        >>> discrete_gaussian(torch.tensor([0.5, 0.1587, 0.9772], dtype=torch.float64), 100.0)
        tensor([   0., -100.,  200.], dtype=torch.float64)

    Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
    """
    most = int(WIDEST * deviation)
    half = np.exp(-0.5 * np.square(np.arange(most, -1, -1) / deviation))  # from the tail, where numbers are small
    below = np.cumsum(half)
    below /= below[-1] + (below[-1] - half[-1])
    table = torch.from_numpy(below).to(chance.device)
    # Both halves are looked up in the lower one, whose numbers are exact to its end.
    numbers = torch.searchsorted(table, torch.minimum(chance, 1.0 - chance)) - most
    return torch.where(chance < 0.5, numbers, -numbers).to(torch.float64)
