"""Average the n - f vectors of least diameter (MDA)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import torch

from turnout.pieces.aggregation.mixing import distances
from turnout.pieces.aggregation.robust import Combination


@dataclass(frozen=True)
class MinimumDiameter(Combination, name="minimum_diameter"):
    """Average the subset of vectors of least diameter, the largest distance between two of them (MDA).

    The subset has n - f vectors, where n is the number of vectors of a step and f the maximum number of Byzantine ones
    (see `Robust`, also for the options). The solution is exact: two vectors farther apart than d cannot both remain, so
    a subset of diameter at most d is the complement of a vertex cover of at most f vectors, and the least d is found by
    bisection. In the worst case the time doubles with every Byzantine report. Of several such subsets, the one whose
    vectors have the least distances to all others is preferred.

    Example:
        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(MinimumDiameter(), report([[1.0], [1.1], [1.2], [1.3], [1000.0]]))
        [[1.15]]

    Reference: El Mhamdi, Guerraoui and Rouault, "The hidden vulnerability of distributed learning in Byzantium", ICML
    2018, after Rousseeuw, "Multivariate estimation with high breakdown point", 1985.
    """

    def coefficients(self, products: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return ``1 / (n - f)`` for the vectors that remain, and 0 for others."""
        squares = distances(products).cpu().numpy()
        chosen = closest(squares, byzantine)
        return products.new_zeros(len(products)).index_fill_(
            0, torch.from_numpy(chosen).to(products.device), 1.0 / len(chosen)
        )


def closest(squares: np.ndarray, byzantine: int) -> np.ndarray:
    """Return the indices of the n - f vectors of least diameter, int64, from squared distances ``[n, n]``."""
    order = np.argsort(np.sqrt(squares).sum(axis=1), kind="stable")
    squares = squares[np.ix_(order, order)]
    lengths = np.unique(squares)
    # The largest length is not tried: no vector has to be removed for it.
    least = bisect_left(lengths[:-1], True, key=lambda length: _coverable(squares > length, byzantine))
    far, left = squares > lengths[least], byzantine
    chosen = np.ones(len(squares), dtype=bool)
    for vector in range(len(squares) - 1, -1, -1):  # the last vectors are removed first, if possible
        if left and _coverable(_without(far, vector), left - 1):
            far, chosen[vector], left = _without(far, vector), False, left - 1
    return np.sort(order[chosen])


def _coverable(far: np.ndarray, budget: int) -> bool:
    """Return whether removing at most `budget` vectors removes every pair of `far`, bool ``[n, n]``."""
    degrees = far.sum(axis=1)
    worst = int(degrees.argmax())
    if degrees[worst] == 0:
        return True
    if budget == 0 or degrees.sum() > 2 * budget * degrees[worst]:
        return False
    if _coverable(_without(far, worst), budget - 1):
        return True
    others = np.flatnonzero(far[worst])
    return len(others) <= budget and _coverable(_without(far, others), budget - len(others))


def _without(far: np.ndarray, vectors: int | np.ndarray) -> np.ndarray:
    """Return the pairs without those that contain one of these vectors."""
    rest = far.copy()
    rest[vectors] = False
    rest[:, vectors] = False
    return rest
