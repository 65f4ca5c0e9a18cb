"""Average models, and shift the average by the sum of all movements of the clients' duals (FedDyn)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.requirements import needs_alone, needs_single_draws
from turnout.pieces.base import Aggregation, Slots, Weights, WithState
from turnout.pieces.local.dynamic import DynamicRegularizer
from turnout.pieces.weighting.normalise import DivideByParticipants


@dataclass(frozen=True)
class FedDyn(Aggregation, name="feddyn"):
    """``s <- s + (1/N) sum_b Delta_b``, then ``u = mean_b(Delta_b) + s``; s starts at 0, and empty rounds change nothing.

    The paper writes ``h = -alpha s``, ``h^t = h^{t-1} - alpha (1/N) sum_b (w_b - w^{t-1})`` and ``w^t = mean_b(w_b) - h^t /
    alpha`` (FedDyn). The server needs no alpha, and ``h = mean_N(lambda_k)``, the mean of what
    `DynamicRegularizer` keeps at all clients, holds after every round.

    The authors' code also evaluates ``mean_b(w_b)``; here the model is w^t, as in the paper. It divides alpha by a
    client's share of the examples, and clips gradients to a norm of 10 (``max_norm=10`` of the solver).

    State: ``shift [P]`` (s), float64.

    Raises:
        ConfigurationError: of an algorithm, for weights other than 1/B, for a selection that draws a client twice, and
            without a `DynamicRegularizer`.

    Example:
        The shift adds up updates over all N, so that the second of two equal rounds goes further:

        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(FedDyn(), report([[1.0], [3.0]]), report([[1.0], [3.0]]), num_clients=4)
        [[3.0], [4.0]]

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021 (arXiv 2111.04263).
    """

    replaces_state = True
    mirrors_clients = True

    only_sums = True

    def init(self, federation: Federation) -> State:
        """Return a shift of zero."""
        return {"shift": torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Count new clients, whose duals are zero, in the mean."""
        return {"shift": state["shift"] * (before.num_clients / after.num_clients)}

    def fits(self, algorithm: Slots) -> None:
        """Refuse pieces with which the shift would not follow the mean of the duals."""
        needs_alone(algorithm, DivideByParticipants, "FedDyn's h is the plain mean of all clients' duals")
        needs_single_draws(algorithm, "whose dual moves once and FedDyn's h twice")
        if not any(isinstance(piece, DynamicRegularizer) for piece in algorithm.corrections):
            raise ConfigurationError("FedDyn's server adds up what DynamicRegularizer() keeps: add it to the pieces")

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]`` and the new shift."""
        mean = report.updates.weighted_sum(weights)
        shift = state["shift"] + mean * (len(report) / federation.num_clients)
        return (mean + shift).to(report.delta.dtype), {"shift": shift}
