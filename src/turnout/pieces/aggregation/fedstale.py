"""Mix fresh updates with a share of the last updates of all clients (FedStale)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError, probability
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.pieces.base import Slots, Weights, WithState
from turnout.pieces.base.per_client import check_lengths, check_shares
from turnout.pieces.weighting.normalise import DivideByClients


@dataclass(frozen=True)
class FedStale(KeepsUpdates, name="fedstale"):
    """``u = sum_b w_b (Delta_b - beta Y_b) + beta mean_N(Y)``, then ``Y_b = Delta_b`` for the clients that report.

    With `shares` p, client n counts ``N p_n`` times in both terms: ``w_b`` is multiplied by ``N p_b``, and ``mean_N(Y)``
    becomes ``sum_n p_n Y_n``. The authors' code has ``p_n = n_n / n``, each client's share of all examples; the paper 1/N.

    With the weights ``w_b = 1 / (N p_b)`` it is ``(1 - beta)`` times the unbiased FedAvg plus ``beta`` times FedVARP for
    unequal rates: at 0 stale updates are left out, and at 1 they count as much as fresh ones. An empty round changes nothing.

    Attributes:
        beta: the share of stale updates, 0 to 1. The paper searches it for every setting; little helps where clients hold
            similar data or some take part far less often than others.
        shares: p, what each client counts in the objective; None is 1/N each.

    State: as FedVARP's, ``table [N, P]`` (Y, zero at first) and ``mean [P]``.

    Raises:
        ConfigurationError: for a beta outside [0, 1], shares that are not a positive number for each client which sum to 1,
            or weights that are not divided by N.

    Example:
        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(FedStale(beta=0.5), report([[1.0], [3.0]]), report([[2.0]]), num_clients=2)
        [[2.0], [2.5]]

    Reference: Rodio and Neglia, "FedStale: leveraging stale client updates in federated learning", ECAI 2024.
    """

    client_rows = ("table",)
    per_client = ("shares",)

    beta: float = 0.5
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        probability("beta", self.beta)
        check_shares(self.shares)

    def init(self, federation: Federation) -> State:
        """Return the state in which no client has sent anything."""
        check_lengths(self, federation.num_clients)
        return super().init(federation)

    def fits(self, algorithm: Slots) -> None:
        """Refuse weights that are not divided by N, as the mean of Y is."""
        if not isinstance(algorithm.weighting[-1], DivideByClients):
            names = " -> ".join(type(piece).__name__ for piece in algorithm.weighting)
            raise ConfigurationError(
                f"the weighting is {names}, but FedStale subtracts from the mean of all N stale updates what takes part: "
                "have weights end in DivideByClients, as fedstale does"
            )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``; the table's rows of the participants are replaced."""
        scale = self._scale(report.client, federation.num_clients)
        if scale is not None:
            weights = weights * to_device(scale, weights.device)
        stored, mean = replace_rows(state, report, self._scale)
        stale = state["mean"] - Updates.of(stored).weighted_sum(weights)
        fresh = report.updates.weighted_sum(weights)
        return (fresh + self.beta * stale).to(report.delta.dtype), state | {"mean": mean}

    def _scale(self, clients: np.ndarray, num_clients: int) -> np.ndarray | None:
        """Return ``N p`` of these clients, float64 ``[n]``; None where it is 1 for all."""
        return None if self.shares is None else num_clients * np.asarray(self.shares)[clients]
