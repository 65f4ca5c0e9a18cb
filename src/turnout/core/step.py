"""The only two functions that see all slots: one step of a client, and one step of the server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from turnout.core.algorithm import Algorithm, Measurement, Weighting
from turnout.core.clients import Clients
from turnout.core.start import Start
from turnout.core.types import Federation, Info, Report, ServerState, State, Task


def client_step(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Report, State]:
    """What B clients do with a task: train and measure, or measure only; guard; report. B is 1 between real machines.

    Returns the reports as they are sent, and the clients' memory (rows ``[B, ...]``) afterwards.
    """
    report, memory = (_measure if task.phase == "measure" else _train)(algorithm, task, memory, clients)
    for guard in algorithm.guard:
        report = guard.apply(report, task)
    return report, memory


def _train(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Report, State]:
    """Train, with the algorithm's measurements before and after."""
    start = Start(task, clients)
    seen = _seen(algorithm, algorithm.measurements, start, None)
    report = algorithm.local.train(task, memory, replace(clients, start=start), algorithm.corrections)
    seen |= _seen(algorithm, algorithm.measurements, start, report.delta)
    return replace(report, seen=report.seen | seen), memory


def _measure(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Report, State]:
    """The selection's measurements alone. Nothing is sent of training, if a measurement needs it, and nothing is kept."""
    start, asked = Start(task, clients), algorithm.selection.measurements
    seen = _seen(algorithm, asked, start, None)
    if any(measurement.of_training for measurement in asked):
        tried = {name: value.clone() for name, value in memory.items()}
        report = algorithm.local.train(task, tried, replace(clients, start=start), algorithm.corrections)
        seen |= _seen(algorithm, asked, start, report.delta)
    versions, no_steps = task.versions(len(clients)), np.zeros(len(clients), dtype=np.int64)
    nothing = task.params.new_zeros((len(clients), 0))
    return Report(clients.ids, versions, clients.num_examples, no_steps, nothing, seen=seen), memory


def _seen(algorithm: Algorithm, asked: tuple[Measurement, ...], start: Start, delta: torch.Tensor | None) -> State:
    """What is measured before training (`delta` is None) or after it."""
    due = [measurement for measurement in asked if measurement.of_training == (delta is not None)]
    return {k: v for piece in due for k, v in piece.measure(start, delta, algorithm.corrections).items()}


def server_step(
    algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation
) -> tuple[ServerState, Info]:
    """What the server does with the reports of a round or of a full buffer: screen, weigh, aggregate, step.

    A report with NaN or infinity is dropped and counted, and so are all of a round whose step overflows. Without a usable
    report the model stays as it is, unless the aggregation acts alone (MIFA). Weights are float64, whatever the type of
    the updates.
    """
    reports, dropped = reports.screened()
    slots = dict(state.slots)
    weights = torch.ones(len(reports), dtype=torch.float64, device=state.params.device)
    for place, piece in algorithm.pieces().items():
        if isinstance(piece, Weighting) and len(reports):
            weights, slots[place] = piece.apply(weights, reports, state.version, slots[place], federation)
    info: Info = {"num_participants": len(reports), "num_dropped": dropped, "weights": weights}
    if not len(reports) and not algorithm.aggregation.acts_alone:
        return ServerState(state.params, state.version + 1, slots), info
    direction, slots["aggregation"] = algorithm.aggregation.apply(weights, reports, slots["aggregation"], federation)
    params, slots["server"] = algorithm.server.apply(state.params, direction, state.version, slots["server"])
    if not torch.isfinite(params.sum(dtype=torch.float64)):  # finite updates whose weighted sum overflows
        slots["server"] = state.slots["server"]
        return ServerState(state.params, state.version + 1, slots), info | {"num_dropped": dropped + len(reports)}
    return ServerState(params, state.version + 1, slots), info | {"update_norm": (params - state.params).norm()}
