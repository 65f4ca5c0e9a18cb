"""Draw discrete Gaussian noise, which clients add under masks."""

from __future__ import annotations

import numpy as np
import torch

FINEST, COARSEST = 4.0, 2.0**17
"""Minimum and maximum standard deviation, in units of the grid.

The sum of n shares of standard deviation s is no discrete Gaussian, but increases the inverse of the noise multiplier by at
most ``tau sqrt(P)``, ``tau = 10 sum_{k<n} exp(-2 pi^2 s^2 k / (k + 1)) <= 10 n exp(-pi^2 s^2)``: for s >= 4 this is less than
``n sqrt(P) 10^-67``, which is below the resolution of floating-point numbers (Kairouz, Liu and Steinke, "The distributed
discrete Gaussian mechanism for federated learning with secure aggregation", ICML 2021, Proposition 14). The maximum bounds
the size of the table for sampling.
"""

WIDEST = 12.0
"""The number of standard deviations beyond which no number is drawn. Their probability, 10^-32, is below the resolution of
random numbers."""


def discrete_gaussian(chance: torch.Tensor, deviation: float) -> torch.Tensor:
    """Draw integers, float64, with ``P[k] ~ exp(-k^2 / (2 s^2))``, by the inverse of their distribution function.

    Args:
        chance: uniform numbers on (0, 1), float64.
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
    # Both halves use the lower half of the table, which is exact in the tail.
    numbers = torch.searchsorted(table, torch.minimum(chance, 1.0 - chance)) - most
    return torch.where(chance < 0.5, numbers, -numbers).to(torch.float64)
