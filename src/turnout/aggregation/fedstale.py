"""FedStale: fresh updates of those who are there, and a share of the last ones of everybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.core.checks import ConfigurationError, probability
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.slots import Slots, Weights
from turnout.weighting.normalise import DivideByClients


@dataclass(frozen=True)
class FedStale(KeepsUpdates):
    """``u = sum_b w_b (Delta_b - beta Y_b) + beta mean_N(Y)``, then ``Y_b = Delta_b`` for those who are there.

    With the weights ``w_b = 1 / (N p_b)`` it is ``(1 - beta)`` times the unbiased FedAvg plus ``beta`` times FedVARP for
    unequal rates: at 0 stale updates are left out, and at 1 they count as much as fresh ones. An empty round changes nothing.

    Attributes:
        beta: the share of stale updates, 0 to 1. The paper searches it for every setting; little helps where clients hold
            alike data or some are there far less often than others.

    State: as FedVARP's, ``table [N, P]`` (Y, zero at first) and ``mean [P]``.

    Raises:
        ConfigurationError: for a beta outside [0, 1], or weights that are not divided by N.

    Reference: Rodio and Neglia, "FedStale: leveraging stale client updates in federated learning", ECAI 2024.
    """

    client_rows: ClassVar[tuple[str, ...]] = ("table",)

    beta: float = 0.5

    def __post_init__(self) -> None:
        probability("beta", self.beta)

    def fits(self, algorithm: Slots) -> None:
        """The mean of Y is over all N clients, and so has to be the sum of fresh updates."""
        if not isinstance(algorithm.weighting[-1], DivideByClients):
            names = " -> ".join(type(piece).__name__ for piece in algorithm.weighting)
            raise ConfigurationError(
                f"the weighting is {names}, but FedStale subtracts from the mean of all N stale updates what takes part: "
                "have weights end in DivideByClients, as fedstale does"
            )

    def apply(
        self, weights: Weights, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """Return the direction ``[P]``; the table's rows of the participants are replaced."""
        del federation
        stored, mean = replace_rows(state, report)
        stale = state["mean"] - Updates.of(stored).weighted_sum(weights)
        fresh = report.updates.weighted_sum(weights)
        return (fresh + self.beta * stale).to(report.delta.dtype), state | {"mean": mean}
