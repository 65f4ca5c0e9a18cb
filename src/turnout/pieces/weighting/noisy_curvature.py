"""Divide weights by a noised sum of bounded curvatures: the divisor of q-FFL under differential privacy."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.base import Slots, Weights, WithState
from turnout.core.ranges import NotNegative
from turnout.core.schedule import StepSize
from turnout.core.types import Federation, Report, State
from turnout.pieces.weighting.fairness import check_gamma, losses, relative_curvature
from turnout.pieces.weighting.noisy_sum import NoisyDivisor


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
