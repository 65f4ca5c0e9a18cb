"""Store the last update of every client on the server: MIFA, FedVARP and AREA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.base import Aggregation, Slots, Weights, WithState
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.requirements import needs_alone, needs_whole_step
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


def replace_rows(
    state: State, report: Report, scale: Callable[[np.ndarray, int], np.ndarray | None] = lambda *_: None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Write the updates into the table, and return its rows before, ``[B, P]``, and its new mean, ``[P]``.

    Each of several processes holds the whole table. If a client has several reports, the one trained from the latest
    version is written.

    Args:
        state: ``table`` and ``mean``; the table is changed in place.
        report: the updates.
        scale: function that returns the weights of clients in the mean, float64 ``[n]``, from their numbers and N; None
            is 1 for each.
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
    if (scaled := scale(ids, num_clients)) is not None:
        weights *= to_device(scaled, weights.device)
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
        needs_alone(
            algorithm,
            DivideByClients,
            "MIFA averages the stored updates of all clients; weights exist only for participants",
        )

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
class Area(KeepsUpdates, name="area"):
    """Move the model to the mean of all clients' last local models (AREA).

    x_b is the local model with which client b ends its training, from whichever version it started, and y_n is the last
    model that client n reported, at first the initial model::

        u = (1/N) sum_b (x_b - y_b)
        y_b <- x_b

    After every step the model is ``x = (1/N) sum_n y_n``: each client counts once, however often it reports and however
    long its training takes. If a client has several reports in a step, the last one counts.

    In the paper each client stores y_b and sends ``x_b - y_b``. Here the server stores all y_n and computes the same
    sum, so it sees single updates, which the paper's server does not.

    State: ``table [N, P]``, the rows y_n minus the initial model, and ``mean [P]``, float64, their mean.

    Raises:
        ConfigurationError: if weights are other than 1/N, or a server step is other than ``x + u``.

    Example:
        The direction is a client's progress since its last report, divided by N:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(Area(), report([[1.0]]), report([[1.0]]), num_clients=2)
        [[0.5], [0.25]]

    Reference: Iakovidou and Kim, "Asynchronous federated stochastic optimization for heterogeneous objectives under
    arbitrary delays", 2024 (arXiv 2405.10123), in the version of the first author's simulator.
    """

    reads = frozenset({"offset"})
    client_rows = ("table",)

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for pieces with which the model is not the mean of all clients' last models."""
        why = "AREA's model is the mean of all N clients' last models, each of them counted once"
        needs_alone(algorithm, DivideByClients, why)
        needs_whole_step(algorithm, "Area")

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``, and replace the rows of the reporting clients."""
        arrived = report.updates.gathered() + state["mean"].to(report.delta.dtype)
        if report.model_offset is not None:
            arrived += Updates.of(report.model_offset).gathered()
        mean = replace_rows(state, replace(report, delta=arrived))[1]
        return (mean - state["mean"]).to(report.delta.dtype), state | {"mean": mean}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Give new clients the present model as their last one, so that it remains the mean of all."""
        here = state["mean"].to(state["table"].dtype)
        return state | {"table": torch.cat([state["table"], here.expand(after.num_clients - before.num_clients, -1)])}
