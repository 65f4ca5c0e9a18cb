"""Reduce the variance of partial participation by the last update of every client (FedVARP)."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.base import Slots, Weights, WithState
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.pieces.aggregation.requirements import needs_alone
from turnout.pieces.weighting.normalize import DivideByParticipants


@dataclass(frozen=True)
class FedVarp(KeepsUpdates, name="fedvarp"):
    """Add the mean change of the participants' updates to the mean of all clients' last updates (FedVARP).

    Delta_b is the new update of participant b, w_b = 1/B its weight, and Y_n the last update of client n, 0 at first::

        u = (1/N) sum_n Y_n + sum_b w_b (Delta_b - Y_b)
        Y_b <- Delta_b

    Y_n is the control variate of client n: it represents absent clients, and so reduces the variance that random
    participation causes. A round without reports changes nothing, as in FedAU's comparison; the original applies the
    mean of Y.

    State: ``table [N, P]`` (Y), and ``mean [P]``, float64, the mean of its rows, updated at the cost of the cohort.

    Raises:
        ConfigurationError: if weights are other than 1/B.

    Example:
        In the second round, absent client 1 is represented by its last update:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(FedVarp(), report([[1.0], [3.0]]), report([[2.0]]), num_clients=2)
        [[2.0], [3.0]]

    Reference: Jhunjhunwala et al., "FedVARP: tackling the variance due to partial client participation", UAI 2022.
    """

    client_rows = ("table",)

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for weights other than 1/B, with which the correction is not centered on the mean of Y."""
        needs_alone(
            algorithm,
            DivideByParticipants,
            "FedVARP corrects with mean(Delta - Y) over the participants; other weights shift it away from the mean of Y",
        )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``, and replace the rows of the participants."""
        stored, mean = replace_rows(state, report)
        change = report.updates.weighted_sum(weights) - Updates.of(stored).weighted_sum(weights)
        return (state["mean"] + change).to(report.delta.dtype), state | {"mean": mean}
