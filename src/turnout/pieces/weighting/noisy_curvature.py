"""q-FFL's divisor as differential privacy allows it: a sum of bounded curvatures, and noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import positive
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Weighting, Weights, WithState
from turnout.pieces.weighting.fairness import DivideByCurvature
from turnout.pieces.weighting.noisy_sum import sum_of_good
from turnout.pieces.weighting.normalise import ByOneNumber
from turnout.privacy.accounting import Release, check_deviation
from turnout.privacy.noise import gaussian


@dataclass(frozen=True)
class DivideByNoisyCurvature(DivideByCurvature, ByOneNumber, name="divide_by_noisy_curvature"):
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

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """

    replaces_state = True

    divisor_is_public = True
    reads = "own"
    factors = Weighting.factors  # none: a bound is no factor that all reports have in common

    most: float = 4.0
    noise_multiplier: float = 3.0
    least: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("most", "least"):
            positive(name, getattr(self, name))
        check_deviation("noise_multiplier", self.noise_multiplier)

    def release(self) -> Release:
        """Return what the accountant has to know."""
        return Release(self.noise_multiplier)

    def init(self, federation: Federation) -> State:
        """Return no release yet."""
        return {"releases": torch.tensor(0)}

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the noised sum."""
        release, loss = int(state["releases"]), self._loss(report)
        slope = 1.0 + self._relative_curvature(report, loss)  # h_b / (w_b F_b^q)
        bounded = (weights * loss**self.q * slope).nan_to_num(0.0).clamp(-self.most, self.most)
        noise = self.most * self.noise_multiplier * gaussian("noise of the divisor", federation, release, 1).double()
        divisor = (sum_of_good(bounded, report) + noise.to(weights.device)).clamp(min=self.least)
        return bounded / slope / divisor, {"releases": torch.tensor(release + 1)}
