"""Divide by a noised sum of bounded numbers, as differential privacy allows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import positive
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Weighting, Weights, WithState
from turnout.pieces.weighting.normalise import ByOneNumber
from turnout.privacy.accounting import Release, check_deviation
from turnout.privacy.noise import gaussian


class NoisyDivisor(ByOneNumber):
    """Base of normalisers that divide by ``max(sum_b v_b + most z y, least)``, each client's v_b at most `most`.

    y is a Gaussian number of each step. What the sum costs is counted together with the noise of `PrivateSum`.

    State: ``releases []``, int64: how many sums were noised, which the noise of the next one follows from.
    """

    replaces_state = True
    divisor_is_public = True
    factors = Weighting.factors  # none: a bound is no factor that all reports have in common

    most: float
    noise_multiplier: float
    least: float

    def __post_init__(self) -> None:
        for name in ("most", "least"):
            positive(name, getattr(self, name))
        check_deviation("noise_multiplier", self.noise_multiplier)

    def release(self) -> Release:
        """Return what the accountant has to know."""
        return Release(self.noise_multiplier)

    def init(self, federation: Federation) -> State:
        """Return no release yet."""
        return {"releases": torch.tensor(0)}

    def bounded(self, values: torch.Tensor) -> torch.Tensor:
        """Return numbers within `most`; NaN, of a report that is not counted, is 0."""
        return values.nan_to_num(0.0).clamp(-self.most, self.most)

    def noisy_divisor(
        self, bounded: torch.Tensor, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """Return the noised sum of what reports add to the divisor, float64 ``[]``, and the state afterwards.

        A report that held NaN or infinity adds nothing, as one of a client without data, so that both are neighbours.
        """
        release = int(state["releases"])
        noise = self.most * self.noise_multiplier * gaussian("noise of the divisor", federation, release, 1).double()
        if report.good is not None:
            bounded = bounded.where(to_device(report.good, bounded.device), 0.0)
        divisor = (bounded.sum() + noise.to(bounded.device)).clamp(min=self.least)
        return divisor, {"releases": torch.tensor(release + 1)}


@dataclass(frozen=True)
class DivideByNoisySum(NoisyDivisor, name="divide_by_noisy_sum"):
    """``w_b <- min(w_b, most) / max(sum_b min(w_b, most) + most z y, least)``, y a Gaussian number of each step.

    Negative weights are bounded likewise, by -most.

    It goes in the place of MaxFL's divisor, which is a sum over the clients' losses: one client adds at most `most` to it.

    Args:
        most: bound of one weight; of MaxFL's q, 1/4 is the largest there is.
        noise_multiplier: z.
        least: the smallest divisor; noise may make a sum negative.

    State: ``releases []``, int64.

    Example:
        The weight 0.9 counts 0.25, and the noise is small here:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(DivideByNoisySum(noise_multiplier=0.001), report([[0.0]] * 2), weights=[0.1, 0.9])
        [0.2856, 0.7141]
    """

    most: float = 0.25
    noise_multiplier: float = 3.0
    least: float = 0.25

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the noised sum."""
        weights = self.bounded(weights)
        divisor, state = self.noisy_divisor(weights, report, state, federation)
        return weights / divisor, state
