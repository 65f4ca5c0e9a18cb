"""Weigh clients by their true participation rates, which FedAU does without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import KnownInAdvance, Weighting, Weights


@dataclass(frozen=True)
class KnownRates(Weighting, KnownInAdvance, name="known_rates"):
    """``w_b <- w_b / p_b`` with the true participation rate p ("known participation statistics" in FedAU's comparison).

    Args:
        rates: p of each of the N clients; None takes those of the population.

    Raises:
        ConfigurationError: where nobody knows the rates, there are not N of them, or one is outside (0, 1].

    Example:
        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(KnownRates((0.5, 0.1)), report([[0.0]] * 2), num_clients=2)
        [2.0, 10.0]
    """

    replaces_state = True

    reads = "timing"
    participation = "none"

    undoes_participation = True

    rates: tuple[float, ...] | None = None

    def init(self, federation: Federation) -> State:
        """Return ``inverse [N]``, 1 / p_n."""
        rates = federation.rates if self.rates is None else np.asarray(self.rates, dtype=np.float64)
        if rates is None:
            raise ConfigurationError(
                "known_statistics needs the rate at which each client takes part, and here nobody knows it (a selection "
                "that takes only some of the available clients, or a trace without rates, changes it): write "
                "rates=(...), one number for each client, or use fedau, which learns it"
            )
        if len(rates) != federation.num_clients:
            raise ConfigurationError(
                f"{len(rates)} participation rates were given for {federation.num_clients} clients"
            )
        if not ((rates > 0) & (rates <= 1)).all():
            worst = int(np.flatnonzero(~((rates > 0) & (rates <= 1)))[0])
            raise ConfigurationError(
                f"the participation rate of client {worst} is {rates[worst]}; 1/p needs 0 < p <= 1: raise the floor of the "
                "availability, or use fedau with a cutoff"
            )
        return {"inverse": torch.from_numpy(1.0 / rates)}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Refuse clients whose rates nobody knows."""
        raise ConfigurationError(
            f"known_statistics was given the rates of {before.num_clients} clients, and a client has come whose rate nobody "
            "knows: use fedau, which learns it"
        )

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return ``1 / p`` of the clients that report."""
        return state["inverse"][torch.from_numpy(report.client)]

    def client_weights(self, version: int, state: State, federation: Federation) -> np.ndarray:
        """Return ``1 / p_n`` of all clients."""
        return state["inverse"].numpy()
