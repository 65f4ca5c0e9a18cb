"""Select the vectors that are nearest to their neighbors (Krum, Multi-Krum)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.ranges import Count
from turnout.pieces.aggregation.mixing import distances
from turnout.pieces.aggregation.robust import Combination


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
