"""Record the server steps of a run, simulated or served: one row a step, and the table of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from turnout.base.algorithm import Algorithm
from turnout.core.types import Federation, Info, Report, ServerState
from turnout.population import participation_table
from turnout.protocol.batch import Stepped
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.published import Published
from turnout.record.query import History
from turnout.record.tables import numbers


class Recorder:
    """Write the rows of a run into its history, without figures that a run with differential privacy does not publish.

    Args:
        algorithm: the algorithm of the run.
        evaluate_every: server steps between evaluations; the last step is evaluated as well.
        weights: record the weight of each report.

    Attributes:
        history: the tables.
        published: selects the figures that are recorded.
        unplanned: columns of an evaluation of the last round alone, which is not due if the run is continued.
    """

    def __init__(self, algorithm: Algorithm, evaluate_every: int, weights: bool = False) -> None:
        self.history, self.published = History(), Published(algorithm)
        self._evaluate_every, self._weights = evaluate_every, weights
        self.unplanned: list[str] = []

    def step(
        self,
        server: FederatedServer,
        stepped: Stepped,
        figures: Mapping[str, Any],
        evaluate: Callable[[], Mapping[str, float]],
    ) -> dict[str, Any]:
        """Record a server step and return its row.

        Args:
            server: the server after the step.
            stepped: the outcome of the step.
            figures: columns that the driver measures, such as ``seconds``; they replace computed ones.
            evaluate: evaluates the present model; called if an evaluation is due.
        """
        row = {**_of_step(server, stepped), **figures}
        version = server.state.version
        if version % self._evaluate_every == 0 or server.over is not None:
            row |= (scores := evaluate())
            self.unplanned = sorted(scores) if version % self._evaluate_every else []
        row = self.published.row({"num_participants": len(clients := np.unique(stepped.reports.client))} | row)
        record_weights = self._weights and self.published.weights
        self.history.record(
            round=version,
            participants=clients if self.published.participation else None,
            weights=weights_of(stepped.reports, stepped.info, clients) if record_weights else None,
            **row,
        )
        return row

    def set_clients(self, num_clients: int, **columns: Any) -> None:
        """Set the table of clients: their participation, and other columns ``[N]``."""
        table, rounds = self.history.participation, self.history.last_round
        offsets = np.searchsorted(numbers(table["round"]), np.arange(1, rounds + 2))
        realized = participation_table((numbers(table["client"]), offsets), num_clients, rounds)
        participation = {
            "client": np.arange(num_clients),
            "participations": realized["participations"],
            "realized_rate": realized["rate"],
            "mean_interval": realized["mean_interval"],
        }
        self.history.set_clients(**self.published.clients(participation | columns))


def staleness(stepped: Stepped) -> dict[str, Any]:
    """Return the mean and the maximum staleness of the reports of a step; None without reports."""
    values = stepped.version - stepped.reports.version
    if not len(values):
        return {"staleness_mean": None, "staleness_max": None}
    return {"staleness_mean": values.mean(), "staleness_max": values.max()}


def _of_step(server: FederatedServer, stepped: Stepped) -> dict[str, Any]:
    """Return the columns that do not depend on pace and driver."""
    algorithm, state, federation = server.algorithm, server.state, server.federation
    info = stepped.info
    weights = info["weights"].cpu().numpy()
    row: dict[str, Any] = {"num_dropped": info["num_dropped"], "weight_sum": float(weights.sum())}
    if len(weights):
        row |= {"weight_min": weights.min(), "weight_mean": weights.mean(), "weight_max": weights.max()}
    row |= {name: float(info[name]) for name in ("update_norm", "local_loss") if name in info}
    row |= _traffic_of_step(algorithm, state, federation, stepped)
    if "num_too_early" in info:
        row["num_too_early"] = info["num_too_early"]
    if (plan := algorithm.privacy) is not None:
        plan = plan.of(state.slots["aggregation"])
        row |= plan.columns(state.version, server.rounds, federation.lost_releases, federation.noised_answers)
    slots = (tensor for slot in state.slots.values() for tensor in slot.values())
    return row | {"server_bytes": state.params.nbytes + sum(tensor.nbytes for tensor in slots)}


def _traffic_of_step(
    algorithm: Algorithm, state: ServerState, federation: Federation, stepped: Stepped
) -> dict[str, int]:
    """Return the bytes that a step sent, including those of the phase ``"prepare"`` before the first one."""
    row = traffic(algorithm, state, federation, stepped.reports, algorithm.broadcast_bytes(state))
    if stepped.prepared is None:
        return row
    alone = algorithm.broadcast_bytes(state, alone=True)
    more = traffic(algorithm, state, federation, stepped.prepared, alone)
    return row | {name: row[name] + extra for name, extra in more.items()}


def weights_of(reports: Report, info: Info, clients: np.ndarray) -> np.ndarray:
    """Return the weight of each client in a step, float64 ``[n]``: the sum of the weights of its reports.

    Args:
        reports: the reports of the step, including dropped ones.
        info: the figures of the step.
        clients: the clients in `reports`, unique and ascending.

    Returns:
        The sums; NaN for a client whose reports were all dropped.
    """
    if info["num_dropped"] == len(reports):
        return np.full(len(clients), np.nan)
    weights = info["weights"].cpu().numpy()
    used = reports.client[reports.finite()] if len(weights) < len(reports) else reports.client
    rows = np.searchsorted(clients, used)
    counted = np.bincount(rows, minlength=len(clients)) > 0
    return np.where(counted, np.bincount(rows, weights, len(clients)), np.nan)


def traffic(
    algorithm: Algorithm, state: ServerState, federation: Federation, reports: Report, broadcast: int
) -> dict[str, int]:
    """Count the bytes that a round sent; ``bytes_measured`` counts measurements, in both directions.

    The version is sent with the model and with a report, which also has the numbers of examples and steps. A client that has
    measured already has the model, and one that was drawn twice sends one report.

    Args:
        algorithm, state, federation: algorithm, state and federation of the server, before the step.
        reports: the reports of the round.
        broadcast: size of the broadcast in bytes.
    """
    trained = np.unique(reports.client)
    inputs = algorithm.per_client_inputs(trained, state, federation)
    alone = 8 * len(trained) + sum(value.nbytes for value in inputs.values())
    masked = 0
    if (extra := algorithm.aggregation.extra) is not None:
        reports = replace(reports, vector_bytes=0)
        for number in reports.updates.group_sizes:  # of the clients that mask among themselves
            sizes = [extra.bytes(phase, number, len(state.params)) for phase in ("train", *extra.names)]
            masked += number * sum(up for up, _ in sizes)
            alone += number * sum(down for _, down in sizes)
    row = {"bytes_down": len(trained) * broadcast + alone, "bytes_up": len(trained) * reports.nbytes + masked}
    if reports.measured is not None:
        measuring = np.unique(reports.measured.client)
        row["bytes_down"] -= len(np.intersect1d(trained, measuring)) * broadcast
        row["bytes_measured"] = len(measuring) * (broadcast + 8 + reports.measured.nbytes)
    return row
