"""Robust estimates that are linear combinations of the vectors, with coefficients from their inner products."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import WithState
from turnout.core.ranges import Count, Positive
from turnout.core.types import State
from turnout.pieces.aggregation.mixing import distances
from turnout.pieces.aggregation.robust import Robust, Vectors


class Combination(Robust):
    """Base class of robust estimates that are linear combinations of the vectors, with coefficients from inner products."""

    @abstractmethod
    def coefficients(self, products: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return the coefficients ``[n]`` of n vectors from their inner products, float64 ``[n, n]``."""

    def estimate(self, vectors: Vectors, state: State) -> WithState:
        """Return the linear combination, from one Gram matrix and one weighted sum."""
        return vectors.combined(self.coefficients(vectors.gram(), vectors.byzantine_mixed)), state


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


@dataclass(frozen=True)
class Krum(Combination, name="krum"):
    """Select the vector with the least sum of squared distances to its nearest neighbors (Krum).

    n is the number of vectors of a step and f the maximum number of Byzantine ones (see `Robust`). The neighbors of a
    vector are the n - f - 2 vectors nearest to it; if that number is less than 1, one neighbor is used. The guarantee
    requires ``n > 2 f + 2``. If several vectors tie, as two vectors without others do, the result is their mean, so
    that it does not depend on the order of clients.

    The options are those of `Robust`.

    Example:
        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(Krum(), report([[1.0], [1.1], [1.2], [1.25], [1000.0]]))
        [[1.2]]

    Reference: Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent", NeurIPS 2017.
    """

    def coefficients(self, products: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return 1 for the selected vector, shared equally between vectors that tie."""
        best = scores(products, byzantine)
        tied = (best <= best.min() * (1 + 1e-12)).double()
        return tied / tied.sum()


@dataclass(frozen=True)
class MultiKrum(Combination, name="multi_krum"):
    """Average the vectors with the least sums of squared distances to their nearest neighbors (Multi-Krum).

    n is the number of vectors of a step and f the maximum number of Byzantine ones (see `Robust`). The neighbors of a
    vector are the n - f - 2 vectors nearest to it, as for `Krum`.

    Args:
        selected: number of vectors in the mean (m), >= 1, limited to n; None is n - f.

    The other options are those of `Robust`.

    Example:
        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(MultiKrum(), report([[1.0], [1.1], [1.2], [1.3], [1000.0]]))
        [[1.15]]

    Reference: Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient descent", NeurIPS 2017,
    section 5.
    """

    selected: Count | None = None

    def coefficients(self, products: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return 1/m for each of the m selected vectors."""
        n = len(products)
        m = min(n, n - byzantine if self.selected is None else self.selected)
        best = scores(products, byzantine).argsort(stable=True)[:m]
        return products.new_zeros(n).index_fill_(0, best, 1.0 / m)


def scores(products: torch.Tensor, byzantine: int) -> torch.Tensor:
    """Return the sum of squared distances of each vector to its nearest n - f - 2 others, ``[n]``."""
    n = len(products)
    nearest = distances(products).fill_diagonal_(-1.0).sort(dim=1).values[:, 1:]
    return nearest[:, : max(1, n - byzantine - 2)].sum(dim=1)


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
