"""Estimate the mean by the geometric median, computed by Weiszfeld's smoothed algorithm (RFA)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.ranges import Count, Positive
from turnout.pieces.aggregation.robust import Combination


@dataclass(frozen=True)
class GeometricMedian(Combination, name="geometric_median"):
    """Approximate the geometric median, the point with the least sum of distances to all vectors (RFA, Algorithm 2).

    For the vectors v_b of a step (see `Robust`), each iteration of Weiszfeld's algorithm moves the estimate z, 0 at
    first, which is an update that changes nothing::

        c_b = 1 / max(nu, ||z - v_b||)
        z <- sum_b c_b v_b / sum_b c_b

    The rule tolerates f < n/2 Byzantine vectors of n, whatever `fraction` is; only `mixing` reads that option.

    Args:
        iterations: number of iterations, >= 1; according to the paper 3 are sufficient.
        smoothing: lower bound nu of distances, > 0, in units of an update.

    The other options are those of `Robust`.

    Example:
        An outlier does not move the estimate:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(GeometricMedian(), report([[1.0], [1.1], [1000.0]]))
        [[1.1]]

    Reference: Pillutla, Kakade and Harchaoui, "Robust aggregation for federated learning", IEEE TSP 2022, Algorithm 2.
    """

    iterations: Count = 8
    smoothing: Positive = 1e-6

    def coefficients(self, products: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return the coefficients of the vectors in z, which sum to 1."""
        share = products.new_zeros(len(products))
        for _ in range(self.iterations):
            along = products @ share
            squares = products.diagonal() - 2 * along + share @ along
            near = 1.0 / squares.clamp(min=0.0).sqrt().clamp(min=self.smoothing)
            share = near / near.sum()
        return share
