"""Average the last local models of all clients (AREA)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.base import Slots, Weights, WithState
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.pieces.aggregation.requirements import needs_alone, needs_whole_step
from turnout.pieces.weighting.normalize import DivideByClients


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
