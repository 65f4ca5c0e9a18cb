"""The columns of the table of rounds that every round has, whatever the pace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from turnout.core.device import to_device
from turnout.core.types import Federation, Info, Report, ServerState
from turnout.pieces.aggregation import SecureSum
from turnout.pieces.base.algorithm import Algorithm


def of_round(
    algorithm: Algorithm, state: ServerState, federation: Federation, reports: Report, info: Info, rounds: int
) -> dict[str, Any]:
    """Return what a server step of a run of so many rounds used and did; `state` is the one after it."""
    weights = info["weights"].cpu().numpy()
    row: dict[str, Any] = {"num_dropped": info["num_dropped"], "weight_sum": float(weights.sum())}
    if len(weights):
        row |= {"weight_min": weights.min(), "weight_mean": weights.mean(), "weight_max": weights.max()}
    if "update_norm" in info:
        row["update_norm"] = float(info["update_norm"])
    if len(reports) and "loss" in reports.seen:
        trained, losses = reports.num_steps > 0, reports.seen["loss"]
        if trained.any():
            row["local_loss"] = float(
                (losses if trained.all() else losses[to_device(trained, losses.device)]).nanmean()
            )
    broadcast = algorithm.broadcast_bytes(state.params, 1 + len(algorithm.keeps))
    row |= traffic(algorithm, state, federation, reports, broadcast)
    if "num_too_early" in info:
        row["num_too_early"] = info["num_too_early"]
    if (plan := algorithm.privacy) is not None:
        row |= plan.of(state.slots["aggregation"]).columns(state.version, rounds, federation.lost_releases)
    slots = (tensor for slot in state.slots.values() for tensor in slot.values())
    return row | {"server_bytes": state.params.nbytes + sum(tensor.nbytes for tensor in slots)}


def weights_of(reports: Report, info: Info, clients: np.ndarray) -> np.ndarray:
    """Return how much each of these clients counted in a step, float64 ``[n]``: the sum of the weights of its reports.

    Args:
        reports: of the step, the dropped ones among them.
        info: of the step.
        clients: who is in `reports`, each once, ascending.

    Returns:
        The sums; NaN for a client all of whose reports were dropped.
    """
    if info["num_dropped"] == len(reports):
        return np.full(len(clients), np.nan)
    weights = info["weights"].cpu().numpy()
    kept = reports.client[reports.finite()] if len(weights) < len(reports) else reports.client
    place = np.searchsorted(clients, kept)
    counted = np.bincount(place, minlength=len(clients)) > 0
    return np.where(counted, np.bincount(place, weights, len(clients)), np.nan)


def traffic(
    algorithm: Algorithm, state: ServerState, federation: Federation, reports: Report, broadcast: int
) -> dict[str, int]:
    """Bytes that a round sent, of a broadcast of so many; ``bytes_measured`` is what measuring cost, both ways.

    The version comes and goes with the model; a report also carries its numbers of examples and of steps. A client that
    has measured holds the model already, and one that was drawn twice still sends once.
    """
    trained = np.unique(reports.client)
    inputs = algorithm.per_client_inputs(trained, state, federation)
    alone = 8 * len(trained) + sum(value.nbytes for value in inputs.values())
    if isinstance(algorithm.aggregation, SecureSum):
        up, more = algorithm.aggregation.round_bytes(len(trained), len(state.params))
        reports, alone = replace(reports, vector_bytes=up), alone + len(trained) * more
    row = {"bytes_down": len(trained) * broadcast + alone, "bytes_up": len(trained) * reports.nbytes}
    if reports.measured is not None:
        asked = np.unique(reports.measured.client)
        row["bytes_down"] -= len(np.intersect1d(trained, asked)) * broadcast
        row["bytes_measured"] = len(asked) * (broadcast + 8 + reports.measured.nbytes)
    return row
