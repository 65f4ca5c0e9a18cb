"""Use the last update of every client as its control variate (FedVARP)."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.pieces.aggregation.requirements import needs_alone
from turnout.pieces.base import Slots, Weights, WithState
from turnout.pieces.weighting.normalise import DivideByParticipants


@dataclass(frozen=True)
class FedVarp(KeepsUpdates, name="fedvarp"):
    """``u = mean_N(Y) + sum_b w_b (Delta_b - Y_b)``, then ``Y_b = Delta_b`` for the clients that report; Y starts at 0.

    An empty round changes nothing, as in FedAU's comparison (the original applies ``mean_N(Y)``).

    State: ``table [N, P]`` (Y), and ``mean [P]`` in float64, kept up to date at the cost of the cohort.

    Example:
        Client 1, who is away in the second round, takes part with its last update:

        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(FedVarp(), report([[1.0], [3.0]]), report([[2.0]]), num_clients=2)
        [[2.0], [3.0]]

    Reference: Jhunjhunwala et al., "FedVARP: tackling the variance due to partial client participation", UAI 2022.
    """

    client_rows = ("table",)

    def fits(self, algorithm: Slots) -> None:
        """Refuse weights other than 1/B, with which the correction would not be centred on the mean."""
        needs_alone(
            algorithm,
            DivideByParticipants,
            "FedVARP corrects with mean(Delta - Y) over the participants; other weights shift it away from the mean of Y",
        )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``; the table's rows of the participants are replaced."""
        stored, mean = replace_rows(state, report)
        change = report.updates.weighted_sum(weights) - Updates.of(stored).weighted_sum(weights)
        return (state["mean"] + change).to(report.delta.dtype), state | {"mean": mean}
