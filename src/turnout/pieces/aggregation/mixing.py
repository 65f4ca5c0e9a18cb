"""Replace vectors by means of several of them before a robust estimate of their mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from turnout.core.device import to_device
from turnout.core.random import fold, stream
from turnout.core.ranges import Count
from turnout.core.registry import Family, Registered
from turnout.core.types import Federation, Report

Products = Callable[[], torch.Tensor]
"""A function that returns all inner products of the vectors, float64 ``[B, B]``; without a call they are not computed."""


class Mixing(Registered, ABC):
    """Base class of linear transformations of B vectors into n others: a matrix ``[n, B]`` whose rows sum to 1."""

    family = Family("mixing", "mixings", ("turnout.pieces.aggregation",))

    @abstractmethod
    def matrix(self, report: Report, byzantine: int, products: Products, federation: Federation) -> torch.Tensor:
        """Return the matrix, float64 ``[n, B]``.

        Args:
            report: the reports.
            byzantine: maximum number of Byzantine reports, f.
            products: function that computes all inner products of the vectors, ``[B, B]``.
            federation: the clients and the seed.
        """


@dataclass(frozen=True)
class NearestNeighbors(Mixing, name="nearest_neighbors"):
    """Replace every vector by the mean of its nearest neighbors, itself included (NNM).

    The mean is over the B - f vectors nearest to it, where B is the number of reports and f the maximum number of
    Byzantine ones (see `Robust`). The honest vectors become more alike, so that robust rules tolerate heterogeneous
    data.

    Example:
        >>> from turnout.base.trial import aggregate, report
        >>> from turnout.pieces.aggregation import TrimmedMean
        >>> aggregate(TrimmedMean(0.2, NearestNeighbors()), report([[1.0], [1.1], [1.2], [1.3], [1000.0]]))
        [[1.15]]

    Reference: Allouah et al., "Fixing by mixing: a recipe for optimal Byzantine ML under heterogeneity", AISTATS 2023.
    """

    def matrix(self, report: Report, byzantine: int, products: Products, federation: Federation) -> torch.Tensor:
        """Return ``1 / (B - f)`` for the nearest vectors of each vector, and 0 for others."""
        squares = distances(products())
        nearest = squares.argsort(dim=1, stable=True)[:, : len(squares) - byzantine]
        return torch.zeros_like(squares).scatter_(1, nearest, 1.0 / nearest.shape[1])


@dataclass(frozen=True)
class Bucketing(Mixing, name="bucketing"):
    """Divide the vectors at random into buckets of `size` in every step, and replace each bucket by its mean.

    The means of honest vectors are more alike than the vectors, so that robust rules tolerate heterogeneous data. In
    return, they tolerate fewer Byzantine reports: f such reports may still corrupt f of the fewer buckets. The
    assignment is a function of (seed, version, client).

    Args:
        size: number of vectors in a bucket (s), >= 1; the last bucket may have fewer. The paper recommends 2.

    Example:
        >>> from turnout.base.trial import aggregate, report
        >>> from turnout.pieces.aggregation import Median
        >>> aggregate(Median(mixing=Bucketing(2)), report([[1.0], [1.1], [1.2], [1.3], [1000.0]]))
        [[1.15]]

    Reference: Karimireddy, He and Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR
    2022.
    """

    size: Count = 2

    def matrix(self, report: Report, byzantine: int, products: Products, federation: Federation) -> torch.Tensor:
        """Return one row for each bucket."""
        keys = torch.from_numpy(fold(stream("buckets", federation.seed), report.version, report.client))
        bucket = torch.empty(len(report), dtype=torch.int64)
        bucket[keys.argsort(stable=True)] = torch.arange(len(report)) // self.size
        matrix = torch.nn.functional.one_hot(bucket).T.double()
        return to_device(matrix / matrix.sum(dim=1, keepdim=True), federation.device)


def distances(products: torch.Tensor) -> torch.Tensor:
    """Return the squared distances between vectors, ``[n, n]``, from their inner products; the diagonal is exactly 0."""
    lengths = products.diagonal()
    squares = (lengths[:, None] + lengths - products - products.T).clamp(min=0.0)
    return squares.fill_diagonal_(0.0)
