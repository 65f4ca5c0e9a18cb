"""A divisor that differential privacy allows: a sum of bounded weights, and noise."""

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


@dataclass(frozen=True)
class DivideByNoisySum(ByOneNumber, name="divide_by_noisy_sum"):
    """``w_b <- min(w_b, most) / max(sum_b min(w_b, most) + most z y, least)``, y a Gaussian number of each step.

    Negative weights are bounded likewise, by -most.

    It goes in the place of MaxFL's divisor, which is a sum over the clients' losses: one client adds at most `most` to it.
    What it costs is counted together with the noise of `PrivateSum`.

    Args:
        most: bound of one weight; of MaxFL's q, 1/4 is the largest there is.
        noise_multiplier: z.
        least: the smallest divisor; noise may make a sum negative.

    State: ``releases []``, int64.
    """

    replaces_state = True

    divisor_is_public = True
    factors = Weighting.factors  # none: a bound is no factor that all reports have in common

    most: float = 0.25
    noise_multiplier: float = 3.0
    least: float = 0.25

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

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the noised sum."""
        release, bounded = int(state["releases"]), weights.nan_to_num(0.0).clamp(-self.most, self.most)
        noise = self.most * self.noise_multiplier * gaussian("noise of the divisor", federation, release, 1).double()
        divisor = (sum_of_good(bounded, report) + noise.to(weights.device)).clamp(min=self.least)
        return bounded / divisor, {"releases": torch.tensor(release + 1)}


def sum_of_good(values: torch.Tensor, report: Report) -> torch.Tensor:
    """Return the sum of what reports add to a divisor, ``[B]``; a report that held NaN or infinity adds nothing."""
    return values.sum() if report.good is None else values.where(to_device(report.good, values.device), 0.0).sum()
