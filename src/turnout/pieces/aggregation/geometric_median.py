"""The geometric median, by Weiszfeld's algorithm, smoothed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import count, positive
from turnout.pieces.aggregation.robust import Combination


@dataclass(frozen=True)
class GeometricMedian(Combination, name="geometric_median"):
    """Come near to the point with the least sum of distances to all vectors (RFA): ``z <- sum_b c_b v_b / sum_b c_b``.

    ``c_b = 1 / max(nu, ||z - v_b||)``, beginning at z = 0, an update that changes nothing. It tolerates f < n/2, whatever
    `fraction` says, which only `mixing` reads.

    Args:
        iterations: how often z is moved; the paper finds 3 enough.
        smoothing: nu.

    Example:
        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(GeometricMedian(), report([[1.0], [1.1], [1000.0]]))
        [[1.1]]

    Reference: Pillutla, Kakade and Harchaoui, "Robust aggregation for federated learning", IEEE TSP 2022, Algorithm 2.
    """

    iterations: int = 8
    smoothing: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        count("iterations", self.iterations)
        positive("smoothing", self.smoothing)

    def coefficients(self, products: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return the shares of the vectors in z."""
        share = products.new_zeros(len(products))
        for _ in range(self.iterations):
            along = products @ share
            squares = products.diagonal() - 2 * along + share @ along
            near = 1.0 / squares.clamp(min=0.0).sqrt().clamp(min=self.smoothing)
            share = near / near.sum()
        return share
