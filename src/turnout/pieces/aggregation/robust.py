"""Base classes of aggregations that tolerate Byzantine reports."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch

from turnout.base import Aggregation, Slots, Weights, WithState
from turnout.base.selection import reads_data
from turnout.core.checks import ConfigurationError, is_finite, refuse
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.weighting import Alignment, DivideByCurvature, SignOfAlignment

_SWAYED = {
    Alignment: "weights every client by the mean of all gradients, which a single attacker can reverse",
    SignOfAlignment: "signs every client by the mean of all gradients, which a single attacker can reverse",
    DivideByCurvature: "divides by a sum of losses and norms, by which a single attacker can bring every step to zero",
}
"""Weightings with which a single report can change the weights of all others without bound."""

_LONGEST = 1e100
"""The maximum norm of an update. Longer ones, which no model survives, are scaled down to it, so that no product
overflows."""

_FAR = 1e8
"""The maximum ratio of a vector's norm to the median norm. Longer vectors are scaled down: if two of them canceled each
other, their rounding error would be larger than honest vectors."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors ``v_b = s_b Delta_b``, the mean of which a robust rule estimates.

    Norms and inner products are sums over columns, which may be in other processes or chunks. The updates are never
    gathered in one matrix.

    Attributes:
        rows: the updates Delta_b, ``[B, P]``.
        scale: the factors s_b, float64 ``[B]``.
        byzantine: the maximum number of Byzantine reports, f.
        mixed: matrix that mixes the B vectors into n others, float64 ``[n, B]``; None without mixing.
    """

    rows: Updates
    scale: torch.Tensor
    byzantine: int
    mixed: torch.Tensor | None = None

    def products(self) -> torch.Tensor:
        """Return all inner products before mixing, float64 ``[B, B]``."""
        return self.scale[:, None] * self.rows.gram() * self.scale

    def gram(self) -> torch.Tensor:
        """Return all inner products after mixing, float64 ``[n, n]``."""
        return self.products() if self.mixed is None else self.mixed @ self.products() @ self.mixed.T

    def inner(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the inner products with a vector after mixing, float64 ``[n]``."""
        along = self.scale * self.rows.inner(vector)
        return along if self.mixed is None else self.mixed @ along

    def combined(self, coefficients: torch.Tensor) -> torch.Tensor:
        """Return the linear combination of the mixed vectors with these coefficients ``[n]``, float64 ``[P]``."""
        chosen = coefficients if self.mixed is None else coefficients @ self.mixed
        return self.rows.weighted_sum(chosen * self.scale)

    @property
    def byzantine_mixed(self) -> int:
        """The maximum number of Byzantine vectors after mixing: f, but less than half of the vectors."""
        return self.byzantine if self.mixed is None else min(self.byzantine, (len(self.mixed) - 1) // 2)


@dataclass(frozen=True)
class Robust(Aggregation):
    """Base class of robust estimates of the mean of the vectors ``v_b = B w_b Delta_b``.

    Delta_b is the update of one of B reports, and w_b its weight. The weighted sum of updates is the mean of these
    vectors, ``sum_b w_b Delta_b = (1/B) sum_b v_b``. A robust rule replaces the mean by an estimate that a minority of
    Byzantine reports, which may contain anything, changes only by a bounded amount. Each rule is that of its paper for
    any weights, and with the plain mean as the estimate an algorithm is unchanged. A client with a large weight, such
    as a rarely available one with FedAU, has a longer vector, honest or not.

    Args:
        fraction: maximum fraction of Byzantine reports, in [0, 0.5); of B reports, ``f = floor(fraction B)``. The
            default of 0.2 tolerates none in a cohort of fewer than 5.
        mixing: transformation of the vectors before the estimate, `NearestNeighbors` or `Bucketing`; None is no
            mixing.

    Raises:
        ConfigurationError: if a fraction is out of range, or a single report can influence the algorithm outside of the
            aggregated updates: control variates, selections by clients' measurements, and weightings in which one
            report can change the weights of all others.
    """

    fraction: float = 0.2
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        if not is_finite(self.fraction) or not 0 <= self.fraction < 0.5:
            raise refuse("fraction", given=self.fraction, needed="a number >= 0 and < 0.5")

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for algorithms that one Byzantine client influences outside of the aggregated updates."""
        name = type(self).__name__
        if algorithm.keeps:
            raise ConfigurationError(
                f"{name} protects the mean of updates, and the server also sums control variates ({algorithm.keeps[0]}), by "
                "which a single attacker can change every client's steps: use it without Scaffold"
            )
        for piece in algorithm.weighting:
            if why := _SWAYED.get(type(piece)):
                raise ConfigurationError(
                    f"{type(piece).__name__} {why}, and {name} does not prevent that: use weights that depend only on a "
                    "client's own report"
                )
        if reads_data(algorithm.selection):
            raise ConfigurationError(
                f"{name} requires that most reports are honest, and {type(algorithm.selection).__name__} chooses the cohort "
                "by clients' measurements, so attackers can fill it: use Uniform"
            )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``."""
        count, rows = len(report), report.updates
        if rows.dtype == torch.float64:  # the only type whose squares overflow
            rows = rows.shortened(_LONGEST)
        byzantine = int(self.fraction * count + 1e-9)  # 0.29 * 100 is 28.999...
        vectors = Vectors(rows, _comparable(count * weights, rows.norms()), byzantine)
        if self.mixing is not None:
            mixed = self.mixing.matrix(report, byzantine, vectors.products, federation)
            vectors = replace(vectors, mixed=mixed)
        direction, state = self.estimate(vectors, state)
        return direction.to(federation.dtype), state

    @abstractmethod
    def estimate(self, vectors: Vectors, state: State) -> WithState:
        """Return the estimate ``[P]``, float64, and the new state."""


def _comparable(scale: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """Return the factors of the rows, float64 ``[B]``, reduced for vectors longer than `_FAR` times the median norm."""
    lengths = scale.abs() * norms
    limit = _FAR * lengths.median()
    return torch.where((lengths > limit) & (limit > 0), scale * (limit / lengths), scale)
