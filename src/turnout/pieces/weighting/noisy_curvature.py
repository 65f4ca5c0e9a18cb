"""Divide by a noised sum of bounded curvatures: q-FFL's divisor under differential privacy."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.checks import not_negative
from turnout.core.schedule import Schedule, check_step_size
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Slots, Weights, WithState
from turnout.pieces.weighting.fairness import check_gamma, losses, relative_curvature
from turnout.pieces.weighting.noisy_sum import NoisyDivisor


@dataclass(frozen=True)
class DivideByNoisyCurvature(NoisyDivisor, name="divide_by_noisy_curvature"):
    """Divide by a noised sum of the curvatures h_b of `DivideByCurvature`, each of them at most `most`.

    ::

        h_b = w_b (q F_b^(q-1) ||Delta_b||^2 / gamma + F_b^q),    s_b = min(1, most / h_b)
        w_b <- s_b w_b F_b^q / max(sum_b s_b h_b + most z y, least)

    y is a Gaussian number of each step. Losses and lengths have no bound, so a client whose curvature is above `most` counts
    less in the sum and in the divisor alike: it adds at most `most` to the divisor, and `PrivateSum` bounds what it adds to
    the direction. With a large `most` and without noise this is q-FedAvg's step (Li et al., Algorithm 2). What it costs is
    counted together with the noise of `PrivateSum`.

    Args:
        q, lr: as of `DivideByCurvature`.
        most: bound of one curvature; F_b^q, of the losses to expect, is its least useful size.
        noise_multiplier: z.
        least: the smallest divisor; noise may make a sum negative.

    State: ``releases []``, int64.

    Example:
        >>> from turnout.algorithms import qffl
        >>> qffl(also=(DivideByNoisyCurvature(q=1.0, lr=0.1),)).weighting
        (DivideByNoisyCurvature(q=1.0, lr=0.1, most=4.0, noise_multiplier=3.0, least=4.0),)

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """

    reads = "own"
    needs = ("start_loss",)

    q: float = 1.0
    lr: float | Schedule = 0.1
    most: float = 4.0
    noise_multiplier: float = 3.0
    least: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("q", self.q)
        check_step_size("lr", self.lr)

    def fits(self, algorithm: Slots) -> None:
        """Refuse another step size than the one that made the updates."""
        check_gamma(self, self.lr, algorithm)

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the noised sum."""
        loss = losses(report)
        slope = 1.0 + relative_curvature(self.q, self.lr, report, loss)  # h_b / (w_b F_b^q)
        bounded = self.bounded(weights * loss**self.q * slope)
        divisor, state = self.noisy_divisor(bounded, report, state, federation)
        return bounded / slope / divisor, state
