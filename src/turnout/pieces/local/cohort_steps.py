"""Take the local steps of a cohort: in lanes by descending number of steps, and in parts for threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from turnout.base import Correction
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.types import State
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.pieces.local.descent import Descent, StepState
from turnout.pieces.local.local_step import LocalStep


def take_steps(
    steps: Sequence[LocalStep], parts: Sequence[slice], descent: Descent, state: StepState, clients: Clients
) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the local steps of each part, in parallel; return the updates ``[B, P]`` and mean losses ``[B]``."""
    objective, shards = clients.objective, clients.shards
    alone = objective.engine == "one_by_one"
    work = [descent.part(rows, state, shards.x, shards.y, alone) for rows in parts]
    if objective.threads.is_split:
        list(objective.threads.map(lambda item: item[0].run(item[1]), list(zip(steps, work, strict=True))))
    else:
        for step, part in zip(steps, work, strict=True):
            step.run(part)
    number = to_device(np.maximum(descent.num_steps, 1), state.total.device, state.total.dtype)
    return state.params, state.total / number


def lanes_of(num_steps: np.ndarray, objective: Objective, products: int) -> tuple[Lanes, list[slice]]:
    """Return the lanes of a cohort and the part of each thread, with idle lanes for few shapes of steps.

    Args:
        num_steps: number of steps of each client, int64 ``[B]``.
        objective: model and loss.
        products: number of multiplications in a step of a client.
    """
    lanes, alone = Lanes.by_steps(num_steps), objective.engine == "one_by_one"
    parts = objective.threads.parts(lanes.num_steps, products, single=alone)
    if alone:
        return lanes, parts
    sizes = objective.lane_sizes
    return lanes.padded(parts, [sizes.of_part(p.stop - p.start, len(num_steps), products) for p in parts])


def outcome(
    begun: Sequence[Sequence[Correction]], deltas: Sequence[torch.Tensor], whole: torch.Tensor
) -> tuple[State, State, torch.Tensor]:
    """Return the changes and the new memory of all corrections, by name, and the updates that are reported, ``[B, P]``.

    Rows of all parts are concatenated.

    Args:
        begun: corrections of each part.
        deltas: updates of each part, ``[b, P]``.
        whole: updates of all parts, ``[B, P]``; returned without a copy if no correction replaces them.
    """
    ended = [[one.outcome(delta) for one in corrections] for corrections, delta in zip(begun, deltas, strict=True)]
    changed, remembered = (
        _joined([getattr(left, name) for part in ended for left in part]) for name in ("changes", "remembered")
    )
    sent = [[left.sent for left in part if left.sent is not None] for part in ended]
    if any(sent):
        whole = torch.cat([part[-1] if part else delta for part, delta in zip(sent, deltas, strict=True)])
    return changed, remembered, whole


def _joined(parts: Sequence[State]) -> State:
    """Concatenate the rows of all parts, by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: torch.cat([part[name] for part in parts if name in part]) for name in names}
