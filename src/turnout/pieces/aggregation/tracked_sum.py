"""Track the sum of the last gradients of all clients (FOCUS)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Aggregation, Controls, Slots, Weights, WithState
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.requirements import needs_alone, needs_single_draws
from turnout.pieces.weighting.normalize import DivideByClients


@dataclass(frozen=True)
class TrackedSum(Aggregation, name="tracked_sum"):
    """Step along the negative sum of all clients' last gradients (FOCUS).

    Y is the sum of all clients' last gradients, 0 at first. Delta_b, the report of participant b, is minus the change
    of its gradient since its last report (see `GradientTracking`)::

        Y <- Y - sum_b Delta_b
        u = -Y

    Each client therefore counts once, however often it participates, and the server stores one vector in place of one
    for each client: it pulls changes from the participants and pushes nothing (push-pull). The direction is a sum, N
    times as long as a mean. A round without reports steps as well, as in the paper's recursion.

    State: ``total [P]`` (Y), float64.

    Raises:
        ConfigurationError: if weights are other than 1/N, or the selection draws a client twice in a round.

    Example:
        Two reports of 1 add up:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(TrackedSum(), report([[1.0]]), report([[1.0]]), num_clients=1)
        [[1.0], [2.0]]

    Reference: Ying, Li and Yang, "Exact and linear convergence for federated learning under arbitrary client
    participation is attainable", NeurIPS 2025 (arXiv 2503.20117).
    """

    client_rows = ()
    controls = Controls(mirrors_clients=True, adds_up=True)
    only_sums = True
    acts_alone = True

    def init(self, federation: Federation) -> State:
        """Return a sum of zero."""
        return {"total": torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)}

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for pieces with which each client would not count once."""
        needs_alone(algorithm, DivideByClients, "FOCUS sums the changes of all clients' gradients, each of them once")
        needs_single_draws(algorithm, "whose gradient changes once and FOCUS's sum twice")

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]`` and the new sum."""
        total = state["total"]
        if len(report):
            total = total - report.updates.weighted_sum(weights) * federation.num_clients
        return (-total).to(federation.dtype), {"total": total}
