"""Divide weights by noised sums of bounded numbers, as differential privacy allows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Slots, Weighting, Weights, WithState
from turnout.core.device import to_device
from turnout.core.ranges import NotNegative
from turnout.core.schedule import StepSize
from turnout.core.types import Federation, Report, State
from turnout.pieces.weighting.fairness import check_gamma, losses, relative_curvature
from turnout.pieces.weighting.normalize import ByOneNumber
from turnout.privacy.accounting import Release
from turnout.privacy.noise import GridNoise
from turnout.privacy.ranges import Bound, Deviation


class NoisyDivisor(ByOneNumber):
    """Base class of normalizers that divide by a noised sum of bounded numbers, one for each report.

    The divisor is ``max(sum_b v_b + most z y, least)``, where v_b is what report b adds, at most `most` in absolute
    value, z is the noise multiplier, and y is a standard normal number, drawn anew for each step. The accountant counts
    the privacy cost of the sum together with that of the noise of `PrivateSum`.

    State: ``releases []``, the number of noised sums so far, int64. It is the key of the noise of the next sum.
    """

    client_rows = ()
    divisor_is_public = True
    factors = Weighting.factors  # undefined: the bound scales each report by a factor of its own

    most: Bound
    noise_multiplier: Deviation
    least: Bound

    def release(self) -> Release:
        """Return what the accountant needs to know of the noise."""
        return Release(self.noise_multiplier)

    def init(self, federation: Federation) -> State:
        """Return the state without a release."""
        return {"releases": torch.tensor(0)}

    def bounded(self, values: torch.Tensor) -> torch.Tensor:
        """Return values clipped to ``[-most, most]``; NaN, in a report that is not counted, becomes 0."""
        return values.nan_to_num(0.0).clamp(-self.most, self.most)

    def noisy_divisor(
        self, bounded: torch.Tensor, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """Return the noised sum over reports, float64 ``[]``, and the state.

        A report with NaN or infinity adds nothing, like a report of a client without data, so that both are neighbors
        in the sense of differential privacy.
        """
        release = int(state["releases"])
        if report.good is not None:
            bounded = bounded.where(to_device(report.good, bounded.device), 0.0)
        noise = GridNoise(self.noise_multiplier, self.most)
        noised = noise.noised(bounded.double().sum()[None], "noise of the divisor", federation, release)
        return noised[0].clamp(min=self.least), {"releases": torch.tensor(release + 1)}


@dataclass(frozen=True)
class DivideByNoisySum(NoisyDivisor, name="divide_by_noisy_sum"):
    """Divide weights by their noised sum, each weight bounded, for MaxFL under differential privacy.

    ``w_b <- min(w_b, most) / max(sum_b min(w_b, most) + most z y, least)``, where w_b is the weight of report b, z is
    the noise multiplier, and y is a standard normal number, drawn anew for each step. Negative weights are bounded by
    -most.

    It replaces the divisor of MaxFL (`DivideBySumPlus`), which is a sum over the losses of clients. One client adds at
    most `most` to it.

    Args:
        most: bound of the absolute value of one weight, > 0. The default 1/4 is the largest possible q of MaxFL.
        noise_multiplier: standard deviation z of the noise, as a multiple of `most`.
        least: smallest divisor, > 0. Without it, noise could make the divisor negative.

    State: ``releases []``, the number of noised sums so far, int64.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        The weight 0.9 is reduced to 0.25, and the noise is small here:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideByNoisySum(noise_multiplier=0.001), report([[0.0]] * 2), weights=[0.1, 0.9])
        [0.2856, 0.7139]
    """

    most: float = 0.25
    noise_multiplier: float = 3.0
    least: float = 0.25

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the bounded weights divided by their noised sum, and the state."""
        weights = self.bounded(weights)
        divisor, state = self.noisy_divisor(weights, report, state, federation)
        return weights / divisor, state


@dataclass(frozen=True)
class DivideByNoisyCurvature(NoisyDivisor, name="divide_by_noisy_curvature"):
    """Divide weights by a noised sum of bounded curvatures, for q-FedAvg under differential privacy (q-FFL, Algorithm 2).

    ::

        h_b = w_b (q F_b^(q-1) ||Delta_b||^2 / gamma + F_b^q)
        s_b = min(1, most / h_b)
        w_b <- s_b w_b F_b^q / max(sum_b s_b h_b + most z y, least)

    Here w_b is the weight of report b, F_b is the loss of the received model over the client's training examples,
    Delta_b is its update, gamma is the clients' step size, z is the noise multiplier, and y is a standard normal
    number, drawn anew for each step.

    Losses and norms of updates have no bound. So a client whose curvature h_b exceeds `most` is scaled down, in the sum
    and in the divisor alike: it adds at most `most` to the divisor, and `PrivateSum` bounds its part of the direction.
    The accountant counts the privacy cost together with that of the noise of `PrivateSum`. With a large `most` and
    without noise, this is the step of `DivideByCurvature`.

    Args:
        q: fairness exponent, >= 0; as in `DivideByCurvature`.
        lr: step size gamma of the clients. It must equal that of the local rule.
        most: bound of one client's curvature, > 0. A useful value is at least ``F_b^q`` for the losses to expect.
        noise_multiplier: standard deviation z of the noise, as a multiple of `most`.
        least: smallest divisor, > 0. Without it, noise could make the divisor negative.

    State: ``releases []``, the number of noised sums so far, int64.

    Raises:
        ConfigurationError: if a number is out of range, or for the reasons that `DivideByCurvature` names.

    Example:
        >>> from turnout.algorithms import qffl
        >>> qffl(also=(DivideByNoisyCurvature(q=1.0, lr=0.1),)).weighting
        (DivideByNoisyCurvature(q=1.0, lr=0.1, most=4.0, noise_multiplier=3.0, least=4.0),)

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """

    reads = "own"
    needs = ("start_loss",)

    q: NotNegative = 1.0
    lr: StepSize = 0.1
    most: float = 4.0
    noise_multiplier: float = 3.0
    least: float = 4.0

    def fits(self, algorithm: Slots) -> None:
        """Raise an error if the step size differs from that of the local rule."""
        check_gamma(self, self.lr, algorithm)

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights divided by the noised sum, and the state."""
        loss = losses(report)
        slope = 1.0 + relative_curvature(self.q, self.lr, report, loss)  # h_b / (w_b F_b^q)
        bounded = self.bounded(weights * loss**self.q * slope)
        divisor, state = self.noisy_divisor(bounded, report, state, federation)
        return bounded / slope / divisor, state
