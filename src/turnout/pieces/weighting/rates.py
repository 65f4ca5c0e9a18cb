"""Weight reports by the inverse of participation rates, known in advance or smoothed (F3AST)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import KnownInAdvance, SmoothedRates, Weighting, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Report, State


@dataclass(frozen=True)
class KnownRates(Weighting, KnownInAdvance, name="known_rates"):
    """Divide each report's weight by its client's true participation rate (FedAU, baseline "known participation statistics").

    ``w_b <- w_b / p_b``, where w_b is the weight of report b, and p_b is the probability that the client takes part in
    a round. With `DivideByClients` the average is unbiased.

    Args:
        rates: participation rate p of each of the N clients, in (0, 1]. None takes the rates of availability of the
            population, if these are known. Where clients drop out or miss deadlines, they participate less.

    State: ``inverse [N]``, ``1 / p``, float64.

    Raises:
        ConfigurationError: if rates are unknown, if their number is not N, or if one is outside (0, 1].

    Example:
        >>> from turnout.base.trial import report, weigh
        >>> weigh(KnownRates((0.5, 0.1)), report([[0.0]] * 2), num_clients=2)
        [2.0, 10.0]

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """

    client_rows = ()

    reads = "timing"
    participation = "none"

    undoes_participation = True

    rates: tuple[float, ...] | None = None

    def init(self, federation: Federation) -> State:
        """Return ``inverse [N]``, the inverse of each client's participation rate."""
        rates = federation.rates if self.rates is None else np.asarray(self.rates, dtype=np.float64)
        if rates is None:
            raise ConfigurationError(
                "known_statistics needs the participation rate of each client, and here it is unknown (a selection of only "
                "some of the available clients changes it, and a trace may have no rates): write rates=(...), one number "
                "for each client, or use fedau, which estimates it"
            )
        if len(rates) != federation.num_clients:
            raise ConfigurationError(
                f"{len(rates)} participation rates were given for {federation.num_clients} clients"
            )
        if len(wrong := np.flatnonzero(~((rates > 0) & (rates <= 1)))):
            raise ConfigurationError(
                f"the participation rate of client {wrong[0]} is {rates[wrong[0]]}; 1/p needs 0 < p <= 1: raise the "
                "floor of the availability, or use fedau with a cutoff"
            )
        return {"inverse": torch.from_numpy(1.0 / rates)}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Raise an error, because the rates of new clients are unknown."""
        raise ConfigurationError(
            f"known_statistics was given the rates of {before.num_clients} clients, and the rate of a client that has "
            "enrolled since is unknown: use fedau, which estimates it"
        )

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return ``1 / p`` of each report's client."""
        return state["inverse"][torch.from_numpy(report.client)]

    def client_weights(self, version: int, state: State, federation: Federation) -> np.ndarray:
        """Return ``1 / p`` of all clients, float64 ``[N]``."""
        return state["inverse"].numpy()


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
