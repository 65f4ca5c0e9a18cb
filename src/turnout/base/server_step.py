"""Take one step of the server. `server_step` is the only server function that handles all slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from turnout.base import Normalizer, RecordingSelection, controls
from turnout.base.algorithm import Algorithm
from turnout.base.piece import check_tensor
from turnout.base.rollback import Rollback
from turnout.base.server import ScalesByReports, ShortensSteps, StepsAlone
from turnout.base.weighting import Weighting, check_weights
from turnout.core.device import to_device
from turnout.core.types import Federation, Info, Report, ServerState, State


def server_prepares(algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation) -> ServerState:
    """Set the initial means of the clients' vectors from the reports of all clients before the first round."""
    reports, _ = reports.screened()
    moved = controls.moved(state.slots, reports, federation, algorithm.aggregation.controls)
    return replace(state, slots=state.slots | moved)


class StepOverflows(ArithmeticError):
    """Finite reports lead to a model, or a state of the server optimizer, that is not finite."""


def server_step(
    algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation, *, refuses_overflow: bool = False
) -> tuple[ServerState, Info]:
    """Take a server step with the reports of a round or a buffer: screen, weight, aggregate and step.

    A report with NaN or infinity is dropped and counted. If the step overflows, all of its reports are dropped: it
    becomes an empty step, which keeps only the sums over the memories of clients. With `Algorithm.nulls_dropped`, the
    aggregation receives zeros for dropped reports. Without usable reports the model does not change, unless the
    aggregation acts alone (MIFA, PrivateSum). Weights are float64 for any type of the updates. If a piece raises an
    error, the state is restored.

    On a GPU, this synchronizes once, at the end. The step is taken as if all reports were finite; whether they are is
    read together with the recorded figures. If some are not, the step is undone and repeated without them.

    Args:
        algorithm: the algorithm.
        state: the server's state before the step.
        reports: reports of the step, which may be empty.
        federation: known properties of the federation.
        refuses_overflow: whether to raise an error if the step overflows, so that the caller can find the reports
            responsible.

    Returns:
        The server's state after the step, and figures for logging.

    Raises:
        StepOverflows: if the step overflows and `refuses_overflow` is true.
    """
    undo, dropped, loss = Rollback.of(algorithm, state, reports), 0, reports.mean_loss()

    def take(used: Report) -> tuple[ServerState, Info]:
        after, info = _step(algorithm, state, used, federation)
        return after, info if loss is None else info | {"local_loss": loss}  # of all reports, also of dropped ones

    try:
        taken = _tried(take, reports)
        if taken is None:
            undo()
            reports, dropped = reports.nulled() if algorithm.nulls_dropped else reports.screened()
            taken = _read(*take(reports), [])
        after, info, finite, _ = taken
        if not finite:  # finite updates whose weighted sum overflows
            if refuses_overflow and len(reports):
                raise StepOverflows(f"the step overflows with the reports of {len(reports):,} clients")
            undo()
            after, info = _emptied(take, algorithm, state, after, undo)
            dropped += len(reports)
    except Exception:
        undo()
        raise
    return after, info | {"num_dropped": dropped}


_PIECE = 1 << 22  # numbers

_Taken = tuple[ServerState, Info, bool, bool]
"""The state after a step, its figures, and whether model and optimizer state, and all reports, are finite."""

_Take = Callable[[Report], tuple[ServerState, Info]]
"""A function that takes the step with reports, and returns the state after it and its figures, which may not be read yet."""


def _tried(take: _Take, reports: Report) -> _Taken | None:
    """Try the step with all reports; None if some reports are, or may be, not finite."""
    # A sum is finite only if all of its terms are (if a sum of finite terms overflows, reports are checked again, row by
    # row). The check is thus a few numbers, which stay on the device until the step is done.
    sums = reports.sums()
    if sums is None:
        return None
    try:
        taken = _read(*take(reports), sums)
    except Exception:
        if torch.stack(sums).isfinite().all():
            raise
        return None  # pieces may fail on reports that are not finite; the step is repeated without those
    return taken if taken[-1] else None


def _emptied(
    take: _Take, algorithm: Algorithm, state: ServerState, refused: ServerState, undo: Rollback
) -> tuple[ServerState, Info]:
    """Take an empty step in place of a step to a model that is not finite.

    The memory of clients has changed nevertheless (decision 6), and so has the server's sum of it: the means of the
    clients' vectors, and the state of an aggregation that mirrors them (`Controls.mirrors_clients`).
    """
    after, info, finite, _ = _read(*take(Report.empty(state.params)), [])
    if not finite:  # the aggregation overflows even without reports, from its state
        undo()
        after, info = ServerState(state.params, state.version + 1, state.slots), {**info}
        del info["update_norm"]
    mirrors = controls.PLACES | ({"aggregation"} if algorithm.aggregation.controls.mirrors_clients else set())
    slots = after.slots | {slot: value for slot, value in refused.slots.items() if slot in mirrors}
    return replace(after, slots=slots), info


def _read(after: ServerState, info: Info, sums: list[torch.Tensor]) -> _Taken:
    """Check that the new model and all sums are finite, and read the recorded figures. This synchronizes with a GPU.

    The optimizer state must be finite, too: if the square of a huge update overflows to infinity, the step, which is
    divided by its root, is zero, and so are all later steps.
    """
    if "update_norm" not in info:
        return after, info, True, True
    state = [value for value in after.slots["server"].values() if value.is_floating_point()]
    totals = [value.sum().double() for value in state]
    # In pieces, because a float64 sum on a CPU first makes a float64 copy. Only its finiteness is read.
    total = torch.stack([piece.sum(dtype=torch.float64) for piece in after.params.split(_PIECE)]).sum()
    figures = {name: to_device(info[name], total.device) for name in ("update_norm", "local_loss") if name in info}
    values = torch.stack([total, *totals, *sums, *(figure.double() for figure in figures.values())])
    values, weights = torch.cat([values, info["weights"]]).cpu().split([len(values), len(info["weights"])])
    of_model, of_state, of_reports, read = values.split([1, len(state), len(sums), len(figures)])
    info = info | dict(zip(figures, read, strict=True)) | {"weights": weights}
    # The sum of finite numbers may overflow, so a sum that is not finite is checked elementwise.
    good_state = bool(of_state.isfinite().all()) or all(bool(value.isfinite().all()) for value in state)
    return after, info, bool(of_model.isfinite()) and good_state, bool(of_reports.isfinite().all())


def _step(
    algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation
) -> tuple[ServerState, Info]:
    """Weight and aggregate the reports, and take the step; return the new state and figures."""
    aggregation, server, version = algorithm.aggregation, algorithm.server, state.version
    slots = state.slots | controls.moved(state.slots, reports, federation, aggregation.controls)
    slots |= controls.renewed(slots, version + 1, algorithm.renews)
    weights = _weigh(algorithm, state, slots, reports, federation)
    info: Info = {"num_participants": len(reports), "weights": weights}
    if "model" in aggregation.reads:
        reports = replace(reports, model=state.params)
    if len(reports) or aggregation.acts_alone:
        direction, slots["aggregation"] = aggregation.apply(weights, reports, slots["aggregation"], federation)
        check_tensor(aggregation, direction, tuple(state.params.shape), "a direction", "like the model")
    elif isinstance(server, StepsAlone) and server.acts_alone(version):
        direction = torch.zeros_like(state.params)
    else:
        return ServerState(state.params, version + 1, slots), info
    if isinstance(server, ScalesByReports) and len(reports):
        direction = server.scaled(direction, weights, reports)
    params, slots["server"] = server.apply(state.params, direction, version, slots["server"])
    check_tensor(server, params, tuple(state.params.shape), "parameters", "like the model")
    del direction  # its memory is reused for the difference below
    if isinstance(server, ShortensSteps) and (share := server.shortened(reports, version)) < 1.0:
        params = torch.lerp(state.params, params, share)
    return ServerState(params, version + 1, slots), info | {"update_norm": (params - state.params).norm()}


def _weigh(
    algorithm: Algorithm, state: ServerState, slots: dict[str, State], reports: Report, federation: Federation
) -> torch.Tensor:
    """Return the weights of the chain, float64 ``[B]``.

    The new states, which record participation, are written to `slots`.
    """
    # Clients of a masked sum have weighted their own updates, so that only factors of whole groups remain to be applied.
    fixed, version = reports.updates.fixed, state.version
    weights = torch.ones(len(reports), dtype=torch.float64, device=state.params.device) if fixed is None else fixed
    for slot, piece in algorithm.pieces().items() if len(reports) else ():
        if isinstance(piece, Weighting):
            changed, slots[slot] = piece.apply(weights, reports, version, slots[slot], federation)
            check_weights(piece, changed, len(reports))
            if fixed is None or piece.reads == "staleness" or isinstance(piece, Normalizer):
                weights = changed
        elif isinstance(piece, RecordingSelection):
            slots[slot] = piece.apply(reports, version, slots[slot])
    return weights
