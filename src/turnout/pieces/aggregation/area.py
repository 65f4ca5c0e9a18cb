"""Average the last models of all clients (AREA)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.last_updates import KeepsUpdates, replace_rows
from turnout.pieces.aggregation.requirements import needs_alone, needs_whole_step
from turnout.pieces.base import Slots, Weights, WithState
from turnout.pieces.weighting.normalise import DivideByClients


@dataclass(frozen=True)
class Area(KeepsUpdates, name="area"):
    """``u = (1/N) sum_b (x_b - y_b)``, then ``y_b = x_b`` for those who report; all y begin at the first model.

    x_b is the model that client b arrived at from whichever version it had, so that ``x = (1/N) sum_n y_n`` at all times: a
    client counts once, however often it reports, and how long it takes does not matter.

    In the paper each client keeps its y and sends ``x_b - y_b``. Here the server keeps them and works out the same sum; it
    therefore sees updates, which the paper's server does not. Of a client with several reports in a step the differences
    add up to that of the last.

    State: ``table [N, P]``, y minus the first model, and ``mean [P]`` in float64, x minus the first model.

    Raises:
        ConfigurationError: for weights other than 1 / N, or a server step other than ``x + u``.

    Example:
        The direction is a client's progress since its last report, over N:

        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(Area(), report([[1.0]]), report([[1.0]]), num_clients=2)
        [[0.5], [0.25]]

    Reference: Iakovidou and Kim, "Asynchronous federated stochastic optimization for heterogeneous objectives under arbitrary
    delays", 2024 (arXiv 2405.10123), as in the first author's simulator.
    """

    of_models = True
    client_rows = ("table",)

    def fits(self, algorithm: Slots) -> None:
        """Refuse pieces with which the model would not be the mean of the clients' last models."""
        why = "AREA's model is the mean of where all N clients last arrived, each of them counted once"
        needs_alone(algorithm, DivideByClients, why)
        needs_whole_step(algorithm, "Area")

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``; the table's rows of those who report are replaced."""
        arrived = report.updates.gathered() + state["mean"].to(report.delta.dtype)
        if report.model_offset is not None:
            arrived += Updates.of(report.model_offset).gathered()
        mean = replace_rows(state, replace(report, delta=arrived))[1]
        return (mean - state["mean"]).to(report.delta.dtype), state | {"mean": mean}

    def grow(self, state: State, before: Federation, after: Federation, version: int) -> State:
        """Have new clients begin at the present model, so that it stays the mean of all."""
        here = state["mean"].to(state["table"].dtype)
        return state | {"table": torch.cat([state["table"], here.expand(after.num_clients - before.num_clients, -1)])}
