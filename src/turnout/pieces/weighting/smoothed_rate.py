"""Weight reports by the client's share of the objective divided by its smoothed participation rate (F3AST)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import SmoothedRates, Weighting, Weights, WithState
from turnout.core.types import Federation, Report, State


@dataclass(frozen=True)
class BySmoothedRate(SmoothedRates, Weighting, name="by_smoothed_rate"):
    """Weight each report by its client's share of the objective divided by its smoothed participation rate (F3AST).

    ``w_b <- w_b p_b / r_b``. Here w_b is the weight of report b, p_b is the client's share of the objective, and r_b is
    an exponential average of its participation, the present round included: ``r_b <- (1 - beta) r_b + beta 1_b`` in
    each round, where 1_b is 1 if the client takes part, and 0 otherwise, from ``r_b = 1 / N``. Dividing by the rate
    makes the sum of updates unbiased.

    Args:
        beta: smoothing factor, in (0, 1]. Larger values follow recent rounds more closely.
        shares: share p of each of the N clients in the objective, positive numbers that sum to 1. None means 1/N each.

    State: ``rate [N]``, r after the round ``last``, float64; ``last [N]``, the client's last round, -1 before the
    first, int64.

    Raises:
        ConfigurationError: if `beta` is outside (0, 1], or if `shares` are not positive numbers that sum to 1.

    Example:
        In its first round a client's rate grows from 1/N = 0.1 to 0.55:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(BySmoothedRate(beta=0.5), report([[0.0]]), num_clients=10)
        [0.1818]

    Reference: Ribero, Vikalo and de Veciana, "Federated learning under intermittent client availability and
    time-varying communication constraints", IEEE JSTSP 2023.
    """

    reads = "timing"
    participation = "own"

    undoes_participation = True

    client_rows = ("rate", "last")

    beta: float = 0.01
    shares: tuple[float, ...] | None = None

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights times ``p / r`` with this round included, and the state after it."""
        weights, state = super().apply(weights, report, version, state, federation)
        self.note(report.client, version, state)
        return weights, state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return ``p / r`` of each report's client."""
        share = self.share(report.client, federation.num_clients)
        return torch.from_numpy(share / self.rate_after(report.client, version, state))
