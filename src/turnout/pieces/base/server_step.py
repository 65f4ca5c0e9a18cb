"""One step of the server: the only function of the server that sees all slots."""

from __future__ import annotations

from dataclasses import replace

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Info, Report, ServerState, State
from turnout.pieces.base import Normaliser, Piece, RecordingSelection, controls
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.base.rollback import Rollback
from turnout.pieces.base.weighting import Weighting, check_weights


def server_prepares(algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation) -> ServerState:
    """Take in what all clients keep, from their reports before the first round."""
    reports, _ = reports.screened()
    return replace(state, slots=state.slots | controls.moved(state.slots, reports, federation, algorithm.aggregation))


class StepOverflows(ArithmeticError):
    """Finite reports lead to a model, or a state of the server's optimizer, that is not finite."""


def server_step(
    algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation, *, refuses_overflow: bool = False
) -> tuple[ServerState, Info]:
    """Take a server step with the reports of a round or of a full buffer: screen, weigh, aggregate, step.

    A report with NaN or infinity is dropped and counted, and so are all of a round whose step overflows: that one is an empty
    step, of which nothing but what sums the memories of clients remains. An aggregation that `nulls_dropped` takes a dropped
    report as zeros. Without a usable report the model stays as it is, unless the aggregation acts alone (MIFA, PrivateSum).
    Weights are float64, whatever the type of the updates. If a piece raises, the state is as it was before.

    On a GPU this waits once, at its end. The step is taken as though all reports were good, and whether they were is read
    together with what is recorded of it; if not, it is taken back, and taken without the bad ones.

    Raises:
        StepOverflows: for a step that overflows, if `refuses_overflow`; whoever asks finds out by whose reports.
    """
    undo, dropped = Rollback.of(algorithm, state, reports), 0
    try:
        taken = _tried(algorithm, state, reports, federation)
        if taken is None:
            undo()
            reports, dropped = reports.nulled() if algorithm.aggregation.nulls_dropped else reports.screened()
            taken = _read(*_step(algorithm, state, reports, federation), [])
        after, info, finite, _ = taken
        if not finite:  # finite updates whose weighted sum overflows
            if refuses_overflow and len(reports):
                raise StepOverflows(f"the step overflows with the reports of {len(reports):,} clients")
            undo()
            after, info = _emptied(algorithm, state, after, federation, undo)
            dropped += len(reports)
    except Exception:
        undo()
        raise
    return after, info | {"num_dropped": dropped}


_PIECE = 1 << 22  # numbers

_Taken = tuple[ServerState, Info, bool, bool]
"""The state after a step, its record, whether model and optimizer's state are finite, and whether all reports were."""


def _tried(algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation) -> _Taken | None:
    """Try the step with all reports; None if some are bad or may be, or if that is known already."""
    # A sum is finite only if all of its terms are (an overflow of finite terms is looked at again, row by row). So the answer
    # is a few numbers that can wait on the device until the step is through.
    sums = reports.sums()
    if sums is None:
        return None
    try:
        taken = _read(*_step(algorithm, state, reports, federation), sums)
    except Exception:
        if torch.stack(sums).isfinite().all():
            raise
        return None  # pieces need not cope with what was never meant for them
    return taken if taken[-1] else None


def _emptied(
    algorithm: Algorithm, state: ServerState, refused: ServerState, federation: Federation, undo: Rollback
) -> tuple[ServerState, Info]:
    """Take an empty step in place of one that led to a model that is not finite.

    What clients remember has changed all the same (decision 6), and with it what the server has summed of it: the means of
    controls, and the state of an aggregation that `mirrors_clients`.
    """
    after, info, finite, _ = _read(*_step(algorithm, state, Report.empty(state.params), federation), [])
    if not finite:  # not even alone, along what it remembers
        undo()
        after, info = ServerState(state.params, state.version + 1, state.slots), {**info}
        del info["update_norm"]
    mirrors = controls.PLACES | ({"aggregation"} if algorithm.aggregation.mirrors_clients else set())
    slots = after.slots | {slot: value for slot, value in refused.slots.items() if slot in mirrors}
    return replace(after, slots=slots), info


def _read(after: ServerState, info: Info, sums: list[torch.Tensor]) -> _Taken:
    """Look whether the new model and all sums are finite, and bring what is recorded along: this waits for a GPU.

    The state of the optimizer must be finite, too: where the square of a huge update is infinite, the step, which is divided
    by its root, is zero, and so is every later one.
    """
    if "update_norm" not in info:
        return after, info, True, True
    state = [value for value in after.slots["server"].values() if value.is_floating_point()]
    totals = [value.sum().double() for value in state]
    # In pieces, because on a CPU a float64 sum first makes a float64 copy. All that is read of it is whether it is finite.
    total = torch.stack([piece.sum(dtype=torch.float64) for piece in after.params.split(_PIECE)]).sum()
    values = torch.stack([info["update_norm"].double(), total, *totals, *sums])
    values, weights = torch.cat([values, info["weights"]]).cpu().split([len(values), len(info["weights"])])
    info = info | {"update_norm": values[0], "weights": weights}
    finite = values.isfinite()
    of_state, of_reports = finite[2:].split([len(state), len(sums)])
    # A sum that is not finite may be one of finite numbers.
    good_state = bool(of_state.all()) or all(bool(value.isfinite().all()) for value in state)
    return after, info, bool(finite[1]) and good_state, bool(of_reports.all())


def _step(
    algorithm: Algorithm, state: ServerState, reports: Report, federation: Federation
) -> tuple[ServerState, Info]:
    """Weigh, aggregate, step."""
    aggregation, server, version = algorithm.aggregation, algorithm.server, state.version
    slots = state.slots | controls.moved(state.slots, reports, federation, aggregation)
    slots |= controls.renewed(slots, version + 1, algorithm.renews)
    weights = _weigh(algorithm, state, slots, reports, federation)
    info: Info = {"num_participants": len(reports), "weights": weights}
    if aggregation.reads_model:
        reports = replace(reports, model=state.params)
    if len(reports) or aggregation.acts_alone:
        direction, slots["aggregation"] = aggregation.apply(weights, reports, slots["aggregation"], federation)
        _check_vector(aggregation, direction, state.params, "a direction")
    elif server.acts_alone(version):
        direction = torch.zeros_like(state.params)
    else:
        return ServerState(state.params, version + 1, slots), info
    if server.of_reports and len(reports):
        direction = server.scaled(direction, weights, reports)
    params, slots["server"] = server.apply(state.params, direction, version, slots["server"])
    _check_vector(server, params, state.params, "parameters")
    del direction  # so that of a large model the difference below takes its memory
    if (share := server.shortened(reports, version)) < 1.0:
        params = torch.lerp(state.params, params, share)
    return ServerState(params, version + 1, slots), info | {"update_norm": (params - state.params).norm()}


def _weigh(
    algorithm: Algorithm, state: ServerState, slots: dict[str, State], reports: Report, federation: Federation
) -> torch.Tensor:
    """Return the weights of the chain, float64 ``[B]``; changes `slots`, which also record who took part."""
    # Clients under masks have weighed their updates, so only what is the same for a whole group is still to be decided.
    fixed, version = reports.updates.fixed, state.version
    weights = torch.ones(len(reports), dtype=torch.float64, device=state.params.device) if fixed is None else fixed
    for slot, piece in algorithm.pieces().items() if len(reports) else ():
        if isinstance(piece, Weighting):
            changed, slots[slot] = piece.apply(weights, reports, version, slots[slot], federation)
            check_weights(piece, changed, len(reports))
            if fixed is None or piece.of_staleness or isinstance(piece, Normaliser):
                weights = changed
        elif isinstance(piece, RecordingSelection):
            slots[slot] = piece.apply(reports, version, slots[slot])
    return weights


def _check_vector(piece: Piece, vector: torch.Tensor, params: torch.Tensor, what: str) -> None:
    """Refuse what a piece made if it is not a vector as long as the model; a shorter one would be broadcast."""
    if not isinstance(vector, torch.Tensor) or vector.shape != params.shape:
        shape = tuple(vector.shape) if isinstance(vector, torch.Tensor) else type(vector).__name__
        raise ConfigurationError(
            f"{type(piece).__name__} made {what} of {shape}: needed a tensor of shape {tuple(params.shape)}, like the model"
        )
