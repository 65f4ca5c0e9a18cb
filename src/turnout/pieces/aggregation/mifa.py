"""Average the last updates of all clients, absent ones included (MIFA)."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.pieces.aggregation.requirements import needs_alone
from turnout.pieces.base import Slots, Weights, WithState
from turnout.pieces.weighting.normalise import DivideByClients


@dataclass(frozen=True)
class Mifa(KeepsUpdates, name="mifa"):
    """``Y_b = Delta_b`` for the clients that report, then ``u = mean_N(Y)``; Y starts at 0, and empty rounds step as well.

    State: ``table [N, P]`` (Y), and ``mean [P]`` in float64, kept up to date at the cost of the cohort.

    The original keeps ``(w_b - w) / lr`` and multiplies by the present step size; the two differ only where it decays.

    Example:
        Client 1, who is away in the second round, takes part with its last update:

        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(Mifa(), report([[1.0], [3.0]]), report([[2.0]]), num_clients=2)
        [[2.0], [2.5]]

    Reference: Gu et al., "Fast federated learning in the presence of arbitrary device unavailability", NeurIPS 2021.
    """

    acts_alone = True

    client_rows = ("table",)

    def fits(self, algorithm: Slots) -> None:
        """Refuse weights: all N clients count alike, absent ones included."""
        needs_alone(
            algorithm,
            DivideByClients,
            "MIFA averages the stored updates of all clients; weights exist only for those who are there",
        )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``; the table's rows of the participants are replaced."""
        if len(report):
            state = state | {"mean": replace_rows(state, report)[1]}
        return state["mean"].to(federation.dtype), state
