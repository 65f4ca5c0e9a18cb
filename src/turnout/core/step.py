"""The only two functions that see all slots: one step of a client, and one step of the server."""

from __future__ import annotations

import torch

from turnout.core.algorithm import Algorithm, Weighting
from turnout.core.clients import Clients
from turnout.core.types import Federation, Info, Report, ServerState, State, Task


def client_step(algorithm: Algorithm, task: Task, memory: State, clients: Clients) -> tuple[Report, State]:
    """What B clients do with a task: train, guard, report. B is 1 between real machines.

    Returns the reports as they are sent, and the clients' memory (rows ``[B, ...]``) afterwards.
    """
    report = algorithm.local.train(task, memory, clients, algorithm.corrections)
    for guard in algorithm.guard:
        report = guard.apply(report, task)
    return report, memory


def server_step(
    algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation
) -> tuple[ServerState, Info]:
    """What the server does with the reports of a round or of a full buffer: screen, weigh, aggregate, step.

    A report with NaN or infinity is dropped and counted, and so are all of a round whose step overflows. Without a usable
    report the model stays as it is, unless the aggregation acts alone (MIFA). Weights are float64, whatever the type of
    the updates.
    """
    good = reports.finite()
    dropped = int((~good).sum())
    if dropped:
        reports = reports.take(good.nonzero()[0])
    slots = dict(state.slots)
    weights = torch.ones(len(reports), dtype=torch.float64, device=state.params.device)
    for place, piece in algorithm.pieces().items():
        if isinstance(piece, Weighting):
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
