"""Weight reports by the inverse of known participation rates, the baseline that FedAU does without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import KnownInAdvance, Weighting, Weights
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
        if not ((rates > 0) & (rates <= 1)).all():
            worst = int(np.flatnonzero(~((rates > 0) & (rates <= 1)))[0])
            raise ConfigurationError(
                f"the participation rate of client {worst} is {rates[worst]}; 1/p needs 0 < p <= 1: raise the floor of the "
                "availability, or use fedau with a cutoff"
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
