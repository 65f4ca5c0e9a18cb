"""Store the last update of every client on the server, for FedVARP, MIFA, FedStale and AREA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from turnout.base import Aggregation
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates


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
