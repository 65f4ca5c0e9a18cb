"""Average the last updates of all clients, absent ones included (MIFA)."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.base import Slots, Weights, WithState
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.pieces.aggregation.requirements import needs_alone
from turnout.pieces.weighting.normalize import DivideByClients


@dataclass(frozen=True)
class Mifa(KeepsUpdates, name="mifa"):
    """Average the last updates of all clients, absent ones included (MIFA).

    Delta_b is the new update of participant b, and Y_n the last update of client n, 0 at first::

        Y_b <- Delta_b
        u = (1/N) sum_n Y_n

    Every client counts equally in every round, so the direction is not biased to clients that participate often. Rounds
    without reports step as well.

    The original stores ``(w_b - w) / lr``, with w the received model, w_b the trained one and lr the local step size,
    and multiplies the mean by the present step size. The two differ only if the step size changes over rounds.

    State: ``table [N, P]`` (Y), and ``mean [P]``, float64, the mean of its rows, updated at the cost of the cohort.

    Raises:
        ConfigurationError: if weights are other than 1/N.

    Example:
        In the second round, absent client 1 is represented by its last update:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(Mifa(), report([[1.0], [3.0]]), report([[2.0]]), num_clients=2)
        [[2.0], [2.5]]

    Reference: Gu et al., "Fast federated learning in the presence of arbitrary device unavailability", NeurIPS 2021.
    """

    acts_alone = True

    client_rows = ("table",)

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for weights other than 1/N: all clients count equally, absent ones included."""
        why = "MIFA averages the stored updates of all clients; weights exist only for participants"
        needs_alone(algorithm, DivideByClients, why)

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``, and replace the rows of the participants."""
        if len(report):
            state = state | {"mean": replace_rows(state, report)[1]}
        return state["mean"].to(federation.dtype), state
