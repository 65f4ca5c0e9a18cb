"""Base classes of aggregations that tolerate Byzantine reports."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch

from turnout.core.checks import ConfigurationError, refuse
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.mixing import Mixing
from turnout.pieces.base import Aggregation, Slots, Weights, WithState
from turnout.pieces.weighting import Alignment, DivideByCurvature, SignOfAlignment

_SWAYED = {
    Alignment: "weighs every client by the mean of all gradients, which one attacker's gradient turns around",
    SignOfAlignment: "signs every client by the mean of all gradients, which one attacker's gradient turns around",
    DivideByCurvature: "divides by the sum of losses and lengths, with which one attacker brings every step to zero",
}
"""Weightings by which one report can change the weights of all others without bound."""

_LONGEST = 1e100
"""The longest update. Longer ones, which no model survives, are shortened to it, so that no product overflows."""

_FAR = 1e8
"""How many times longer than their median a vector may be. A longer one is shortened, because the rounding error of two that
cancel each other would be larger than honest vectors."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors ``v_b = scale_b Delta_b`` that a robust rule estimates the mean of.

    Their norms and inner products are sums over columns, which other processes or chunks may hold; the updates themselves
    are never put side by side.

    Attributes:
        rows: the updates ``[B, P]``.
        scale: what each is multiplied by, float64 ``[B]``.
        byzantine: how many may be Byzantine (f).
        mixed: the matrix that mixes them into n others, float64 ``[n, B]``; None where nothing is mixed.
    """

    rows: Updates
    scale: torch.Tensor
    byzantine: int
    mixed: torch.Tensor | None = None

    def products(self) -> torch.Tensor:
        """Return all inner products before mixing, float64 ``[B, B]``."""
        return self.scale[:, None] * self.rows.gram() * self.scale

    @property
    def byzantine_mixed(self) -> int:
        """The number of mixed vectors that may be Byzantine: f, as long as they are a minority."""
        return self.byzantine if self.mixed is None else min(self.byzantine, (len(self.mixed) - 1) // 2)


@dataclass(frozen=True)
class Robust(Aggregation):
    """Estimate the mean of ``v_b = B w_b Delta_b`` robustly: the direction of which the weighted sum is the plain mean.

    So each rule is that of its paper, whatever the weights: ``sum_b w_b Delta_b = (1/B) sum_b v_b``, and with the mean as
    its estimate an algorithm is itself. A client that counts more than others, such as a rare one by FedAU, sends a
    longer vector, honest or not.

    Args:
        fraction: the share of reports that may be Byzantine, in [0, 0.5): of B reports ``f = floor(fraction B)``. A cohort
            as small as a few clients tolerates none.
        mixing: of the vectors before the estimate, `NearestNeighbours` or `Bucketing`; None mixes nothing.

    Raises:
        ConfigurationError: for a fraction out of range, or an algorithm in which one report sways what no aggregation of
            updates sees: control variates, selections by what clients measured, weights that one report can change of all.
    """

    fraction: float = 0.2
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        value = self.fraction
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 0.5:
            raise refuse("fraction", given=value, needed="a number >= 0 and < 0.5")

    def fits(self, algorithm: Slots) -> None:
        """Refuse algorithms that one attacker sways beside the aggregation of updates."""
        name = type(self).__name__
        if algorithm.keeps:
            raise ConfigurationError(
                f"{name} guards the mean of updates, and the server also adds up control variates ({algorithm.keeps[0]}), by "
                "which one attacker turns every client's steps: use it without Scaffold"
            )
        for piece in algorithm.weighting:
            if why := _SWAYED.get(type(piece)):
                raise ConfigurationError(
                    f"{type(piece).__name__} {why}, however robust {name} is: use it with weights that a client's own "
                    "report decides"
                )
        if algorithm.selection.reads_data:
            raise ConfigurationError(
                f"{name} holds while most reports are honest, and {type(algorithm.selection).__name__} chooses the cohort by "
                "what clients measured, so that attackers can fill it: use Uniform"
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


class Combination(Robust):
    """A robust estimate that is a combination of the vectors, with coefficients that their inner products decide."""

    @abstractmethod
    def coefficients(self, products: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return the coefficients ``[n]`` of n vectors, from their inner products, float64 ``[n, n]``."""

    def estimate(self, vectors: Vectors, state: State) -> WithState:
        """Return the combination: one Gram matrix and one weighted sum."""
        inner, mixed = vectors.products(), vectors.mixed
        if mixed is None:
            chosen = self.coefficients(inner, vectors.byzantine)
        else:
            chosen = self.coefficients(mixed @ inner @ mixed.T, vectors.byzantine_mixed) @ mixed
        return vectors.rows.weighted_sum(chosen * vectors.scale), state


class Coordinatewise(Robust):
    """A robust estimate of each coordinate by itself."""

    @abstractmethod
    def combine(self, columns: torch.Tensor, byzantine: int) -> torch.Tensor:
        """Return one number for each column ``[c]``, of n vectors' sorted coordinates, float64 ``[c, n]``."""

    def estimate(self, vectors: Vectors, state: State) -> WithState:
        """Return the estimate of each column."""

        def estimated(columns: torch.Tensor) -> torch.Tensor:
            values, mixed = columns.T.double() * vectors.scale, vectors.mixed
            values = values if mixed is None else values @ mixed.T
            return self.combine(values.sort(dim=1).values, vectors.byzantine_mixed)

        return vectors.rows.columnwise(estimated), state


def _comparable(scale: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """Return the factors of rows, float64 ``[B]``, so that none is too long for others to survive rounding beside it."""
    lengths = scale.abs() * norms
    limit = _FAR * lengths.median()
    return torch.where((lengths > limit) & (limit > 0), scale * (limit / lengths), scale)
