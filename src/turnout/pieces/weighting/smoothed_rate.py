"""Weigh clients by their share of the objective over their smoothed rate of participation (F3AST)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.types import Federation, Report, State
from turnout.pieces.base import SmoothedRates, Weighting, Weights, WithState


@dataclass(frozen=True)
class BySmoothedRate(SmoothedRates, Weighting, name="by_smoothed_rate"):
    """``w_b <- w_b p_b / r_b``; r_b is how often client b takes part, the present round included (`SmoothedRates`).

    State: ``rate [N]`` and ``last [N]``.

    Args:
        beta: of the smoothing, in (0, 1].
        shares: p, what each client counts in the objective; None is 1/N each.

    Raises:
        ConfigurationError: for a beta outside (0, 1], or shares that are not positive numbers which sum to 1.

    Example:
        The first time that a client takes part, its rate grows from 1/N by beta:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(BySmoothedRate(beta=0.5), report([[0.0]]), num_clients=10)
        [0.1818]

    Reference: Ribero, Vikalo and de Veciana, "Federated learning under intermittent client availability and time-varying
    communication constraints", IEEE JSTSP 2023.
    """

    reads = "timing"
    participation = "own"

    undoes_participation = True

    client_rows = ("rate", "last")

    beta: float = 0.01
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        self.check_rates()

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Weigh by the rates with this round; then note who took part in it."""
        weights, state = super().apply(weights, report, version, state, federation)
        self.note(report.client, version, state)
        return weights, state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return ``p / r`` of the clients that report."""
        share = self.share(report.client, federation.num_clients)
        return torch.from_numpy(share / self.rate_after(report.client, version, state))
