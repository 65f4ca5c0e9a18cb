"""Track the sum of the last gradients of all clients (FOCUS)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.requirements import needs_alone, needs_single_draws
from turnout.pieces.base import Aggregation, Slots, Weights, WithState
from turnout.pieces.weighting.normalise import DivideByClients


@dataclass(frozen=True)
class TrackedSum(Aggregation, name="tracked_sum"):
    """``Y <- Y - sum_b Delta_b``, then ``u = -Y``: Y is the sum of the last gradients of all clients.

    The server pushes nothing and pulls the changes of the clients that take part (FOCUS, push-pull), so Y counts every
    client once however often it takes part, and needs no vector of each. It is a sum, N times as large as a mean. A round
    without clients steps too, as the paper's recursion has it.

    State: ``total [P]`` (Y), float64.

    Raises:
        ConfigurationError: of an algorithm, for weights other than 1/N and for a selection that draws a client twice.

    Example:
        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(TrackedSum(), report([[1.0]]), report([[1.0]]), num_clients=1)
        [[1.0], [2.0]]

    Reference: Ying, Li and Yang, "Exact and linear convergence for federated learning under arbitrary client participation is
    attainable", NeurIPS 2025 (arXiv 2503.20117).
    """

    replaces_state = True
    mirrors_clients = True

    only_sums = True
    acts_alone = True
    adds_up = True

    def init(self, federation: Federation) -> State:
        """Return a sum of zero."""
        return {"total": torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)}

    def fits(self, algorithm: Slots) -> None:
        """Refuse pieces with which clients would not count once each."""
        needs_alone(
            algorithm, DivideByClients, "FOCUS adds up the changes of all clients' gradients, each of them once"
        )
        needs_single_draws(algorithm, "whose gradient changes once and FOCUS's sum twice")

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]`` and the new sum."""
        total = state["total"]
        if len(report):
            total = total - report.updates.weighted_sum(weights) * federation.num_clients
        return (-total).to(federation.dtype), {"total": total}
