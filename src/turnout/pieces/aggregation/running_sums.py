"""Step along sums of what all clients reported so far (FedDyn, FOCUS)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Aggregation, Controls, Slots, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Report, State
from turnout.pieces.aggregation.requirements import needs_alone, needs_single_draws
from turnout.pieces.local.regularizers import DynamicRegularizer
from turnout.pieces.weighting.normalize import DivideByClients, DivideByParticipants


@dataclass(frozen=True)
class FedDyn(Aggregation, name="feddyn"):
    """Add the sum of all past updates, divided by N, to the mean update (FedDyn).

    Delta_b is one of the B updates of a round, N the number of all clients, and s a shift, 0 at first::

        s <- s + (1/N) sum_b Delta_b
        u = (1/B) sum_b Delta_b + s

    Together with the local correction `DynamicRegularizer`, the shift s aligns the stationary points of the
    clients' local objectives with those of the mean objective. A round without reports changes nothing.

    The paper's server keeps ``h = -alpha s``, with ``h^t = h^{t-1} - alpha (1/N) sum_b (w_b - w^{t-1})`` and
    ``w^t = (1/B) sum_b w_b - h^t / alpha``, where w^t is the model after round t and w_b that of client b. In this form
    the server needs no alpha. After every round, h is the mean of the dual variables lambda_k that `DynamicRegularizer`
    keeps at all N clients.

    The authors' code also evaluates the mean of the clients' models, ``(1/B) sum_b w_b``; here the model is w^t, as in
    the paper. Their code divides alpha by a client's share of the examples, and clips gradients to a norm of 10
    (``max_norm=10`` of the solver).

    State: ``shift [P]`` (s), float64.

    Raises:
        ConfigurationError: if weights are other than 1/B, the selection draws a client twice in a round, or the
            algorithm has no `DynamicRegularizer`.

    Example:
        The shift grows by updates divided by all N = 4 clients, so the second of two equal rounds has a longer direction:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(FedDyn(), report([[1.0], [3.0]]), report([[1.0], [3.0]]), num_clients=4)
        [[3.0], [4.0]]

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021 (arXiv 2111.04263).
    """

    client_rows = ()
    controls = Controls(mirrors_clients=True)
    only_sums = True

    def init(self, federation: Federation) -> State:
        """Return a shift of zero."""
        return {"shift": torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device)}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Include new clients, whose dual variables are zero, in the mean."""
        return {"shift": state["shift"] * (before.num_clients / after.num_clients)}

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for pieces with which the shift is not the mean of the clients' dual variables."""
        needs_alone(algorithm, DivideByParticipants, "FedDyn's h is the plain mean of all clients' dual variables")
        needs_single_draws(algorithm, "whose dual variable changes once and FedDyn's h twice")
        if not any(isinstance(piece, DynamicRegularizer) for piece in algorithm.corrections):
            raise ConfigurationError(
                "FedDyn's server sums the dual variables of DynamicRegularizer(): add it to the pieces"
            )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]`` and the new shift."""
        mean = report.updates.weighted_sum(weights)
        shift = state["shift"] + mean * (len(report) / federation.num_clients)
        return (mean + shift).to(report.delta.dtype), {"shift": shift}


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
