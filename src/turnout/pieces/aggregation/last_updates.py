"""Average updates with the last updates of all clients, which the server stores (MIFA, FedVARP, FedStale)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base import Aggregation, Slots, Weights, WithState
from turnout.base.piece import Shares
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.ranges import Probability
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.requirements import needs_alone
from turnout.pieces.weighting.normalize import DivideByClients, DivideByParticipants


class KeepsUpdates(Aggregation):
    """Base class of aggregations that store the last update of every client on the server.

    State: ``table [N, P]``, zero at first, and ``mean [P]``, float64, the mean of its rows, updated at the cost of the
    cohort.

    A rule that changes only the rows of its cohort declares ``client_rows = ("table",)`` beside its own `apply`, so
    that a step can be undone (`Stateful.client_rows`). A declaration in this class would not hold for the `apply` of a
    subclass.
    """

    def init(self, federation: Federation) -> State:
        """Return a table of zeros."""
        shape = (federation.num_clients, federation.num_params)
        return {
            "table": torch.zeros(shape, dtype=federation.dtype, device=federation.device),
            "mean": torch.zeros(federation.num_params, dtype=torch.float64, device=federation.device),
        }

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Add rows of zeros for new clients."""
        more = self.init(replace(after, num_clients=after.num_clients - before.num_clients))["table"]
        mean = state["mean"] * (before.num_clients / after.num_clients)
        return {"table": torch.cat([state["table"], more]), "mean": mean}


def last_reports(report: Report) -> np.ndarray:
    """Return the row of each client's report that was trained from the latest version, in ascending order of clients."""
    order = np.lexsort((report.version, report.client))
    return order[np.append(np.diff(report.client[order]) != 0, True)]


def replace_rows(state: State, report: Report, scale: np.ndarray | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Write the updates into the table, and return its rows before, ``[B, P]``, and its new mean, ``[P]``.

    Each of several processes holds the whole table. If a client has several reports, the one trained from the latest
    version is written.

    Args:
        state: ``table`` and ``mean``; the table is changed in place.
        report: the updates.
        scale: weights of the clients in the mean, float64 ``[N]``; None is 1 for each.
    """
    ids, clients = report.client, to_device(report.client, report.delta.device)
    stored = state["table"][clients]
    last = last_reports(report)
    new, old = report.updates.gathered(), stored
    if len(last) < len(report):
        rows = to_device(last, clients.device)
        ids, clients, new, old = ids[last], clients[rows], new[rows], old[rows]
    state["table"][clients] = new
    # Two sums, because the difference of two finite updates can overflow, and infinity would remain in the mean.
    num_clients = len(state["table"])
    weights = torch.full((len(clients),), 1.0 / num_clients, dtype=torch.float64, device=stored.device)
    if scale is not None:
        weights *= to_device(scale[ids], weights.device)
    return stored, state["mean"] + (Updates.of(new).weighted_sum(weights) - Updates.of(old).weighted_sum(weights))


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


@dataclass(frozen=True)
class FedStale(KeepsUpdates, name="fedstale"):
    """Mix the new updates of the participants with the last updates of all clients (FedStale).

    Delta_b is the new update of participant b, w_b its weight, and Y_n the last update of client n, 0 at first::

        u = sum_b w_b (Delta_b - beta Y_b) + beta (1/N) sum_n Y_n
        Y_b <- Delta_b

    With weights ``w_b = 1 / (N p_b)``, where p_b is the participation rate of client b, the direction is ``(1 - beta)``
    times that of the unbiased FedAvg plus ``beta`` times that of FedVARP for unequal rates: ``beta=0`` ignores stale
    updates, and with ``beta=1`` they count as much as new ones. A round without reports changes nothing.

    With `shares`, client n counts N q_n times in both terms: w_b is multiplied by N q_b, and the mean of Y becomes
    ``sum_n q_n Y_n``. The authors' code has a client's share of all examples, ``q_n = n_n / n``, and the paper 1/N.

    Args:
        beta: weight of stale updates, from 0 to 1. The paper tunes it for every setting. Small values are better if
            clients hold similar data or if some of them participate far less often than others.
        shares: weights q_n of the clients in the objective, N positive numbers that sum to 1; None is 1/N for each.

    State: ``table [N, P]`` (Y), and ``mean [P]``, float64, the weighted mean of its rows.

    Raises:
        ConfigurationError: if `beta` is outside [0, 1], shares are not one positive number for each client with the sum
            1, or weights do not end in a division by N.

    Example:
        The second round mixes the new update of client 0 with the last updates of both clients:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(FedStale(beta=0.5), report([[1.0], [3.0]]), report([[2.0]]), num_clients=2)
        [[2.0], [2.5]]

    Reference: Rodio and Neglia, "FedStale: leveraging stale client updates in federated learning", ECAI 2024.
    """

    client_rows = ("table",)
    per_client = ("shares",)

    beta: Probability = 0.5
    shares: Shares | None = None

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for weights that are not divided by N, the divisor of the mean of Y."""
        if not isinstance(algorithm.weighting[-1], DivideByClients):
            names = " -> ".join(type(piece).__name__ for piece in algorithm.weighting)
            raise ConfigurationError(
                f"the weighting is {names}, but FedStale subtracts the participants' stale updates from the mean of all N "
                "clients' stale updates: end the weighting in DivideByClients, as fedstale does"
            )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``, and replace the rows of the participants."""
        scale = None if self.shares is None else federation.num_clients * np.asarray(self.shares)
        if scale is not None:
            weights = weights * to_device(scale[report.client], weights.device)
        stored, mean = replace_rows(state, report, scale)
        stale = state["mean"] - Updates.of(stored).weighted_sum(weights)
        fresh = report.updates.weighted_sum(weights)
        return (fresh + self.beta * stale).to(report.delta.dtype), state | {"mean": mean}
