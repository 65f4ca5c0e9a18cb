"""Mix new updates with the last updates of all clients (FedStale)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.base import Slots, Weights, WithState
from turnout.base.per_client import Shares, check_lengths
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.ranges import Probability
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.pieces.weighting.normalize import DivideByClients


@dataclass(frozen=True)
class FedStale(KeepsUpdates, name="fedstale"):
    """Mix the new updates of the participants with the last updates of all clients (FedStale).

    Delta_b is the new update of participant b, w_b its weight, and Y_n the last update of client n, 0 at first::

        u = sum_b w_b (Delta_b - beta Y_b) + beta (1/N) sum_n Y_n
        Y_b <- Delta_b

    With weights ``w_b = 1 / (N p_b)``, where p_b is the participation rate of client b, the direction is ``(1 - beta)``
    times that of the unbiased FedAvg plus ``beta`` times that of FedVARP for unequal rates: ``beta=0`` ignores stale
    updates, and with ``beta=1`` they count as much as new ones. A round without reports changes nothing.

    With `shares`, client n counts N q_n times in both terms: w_b is multiplied by N q_b, and the mean of Y becomes
    ``sum_n q_n Y_n``. The authors' code has a client's share of all examples, ``q_n = n_n / n``, and the paper 1/N.

    Args:
        beta: weight of stale updates, from 0 to 1. The paper tunes it for every setting. Small values are better if
            clients hold similar data or if some of them participate far less often than others.
        shares: weights q_n of the clients in the objective, N positive numbers that sum to 1; None is 1/N for each.

    State: ``table [N, P]`` (Y), and ``mean [P]``, float64, the weighted mean of its rows.

    Raises:
        ConfigurationError: if `beta` is outside [0, 1], shares are not one positive number for each client with the sum
            1, or weights do not end in a division by N.

    Example:
        The second round mixes the new update of client 0 with the last updates of both clients:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(FedStale(beta=0.5), report([[1.0], [3.0]]), report([[2.0]]), num_clients=2)
        [[2.0], [2.5]]

    Reference: Rodio and Neglia, "FedStale: leveraging stale client updates in federated learning", ECAI 2024.
    """

    client_rows = ("table",)
    per_client = ("shares",)

    beta: Probability = 0.5
    shares: Shares | None = None

    def init(self, federation: Federation) -> State:
        """Return an empty table."""
        check_lengths(self, federation.num_clients)
        return super().init(federation)

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for weights that are not divided by N, the divisor of the mean of Y."""
        if not isinstance(algorithm.weighting[-1], DivideByClients):
            names = " -> ".join(type(piece).__name__ for piece in algorithm.weighting)
            raise ConfigurationError(
                f"the weighting is {names}, but FedStale subtracts the participants' stale updates from the mean of all N "
                "clients' stale updates: end the weighting in DivideByClients, as fedstale does"
            )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``, and replace the rows of the participants."""
        scale = self._scale(report.client, federation.num_clients)
        if scale is not None:
            weights = weights * to_device(scale, weights.device)
        stored, mean = replace_rows(state, report, self._scale)
        stale = state["mean"] - Updates.of(stored).weighted_sum(weights)
        fresh = report.updates.weighted_sum(weights)
        return (fresh + self.beta * stale).to(report.delta.dtype), state | {"mean": mean}

    def _scale(self, clients: np.ndarray, num_clients: int) -> np.ndarray | None:
        """Return ``N q_n`` of these clients, float64 ``[n]``; None if it is 1 for all."""
        return None if self.shares is None else num_clients * np.asarray(self.shares)[clients]
