"""Take the local steps of a cohort: in lanes by descending number of steps, and in parts for threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from turnout.base import Correction
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.schedule import Schedule
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.pieces.local.descent import Descent, StepState
from turnout.pieces.local.local_step import LocalStep, split_tensors
from turnout.pieces.local.minibatches import Plan
from turnout.pieces.local.update import Direction, Update

PREFIX = "solver."
"""Prefix of the names of a solver's state in client memory."""


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


@dataclass(frozen=True)
class CohortSteps:
    """The local steps of a cohort.

    Attributes:
        lr: step size, or a schedule.
        direction: function that computes the direction of a step before corrections.
        update: update rule of a step.
        per_step: number of minibatches per step.
        accumulate: number of these over which a gradient is the mean.
        state_names: names of the update rule's state that client memory holds, with `PREFIX`; empty if it starts anew.
    """

    lr: float | Schedule
    direction: Direction
    update: Update
    per_step: int
    accumulate: int
    state_names: tuple[str, ...]

    def train(
        self,
        planned: Plan,
        task: Task,
        memory: State,
        clients: Clients,
        corrections: tuple[Correction, ...],
        first: tuple[torch.Tensor, torch.Tensor] | None,
        masked: bool = False,
    ) -> Report:
        """Train B clients from the task's parameters; return their reports, and store in `memory` what they keep.

        Clients with more steps continue after the others have finished.

        Args:
            planned: minibatches of the clients, `per_step` for each step.
            task, memory, clients, corrections: as in `Local.train`.
            first: loss ``[B]`` and gradient ``[B, P]`` of the first step, if they are known in advance; else None.
            masked: whether minibatches of other clients have padding, so that a mask makes no further shape.
        """
        objective, num_steps = clients.objective, planned.num_steps // self.per_step
        # The approximate number of multiplications in a step of a client.
        products = planned.examples.shape[2] * self.per_step * objective.layout.num_params
        rounded = partial(objective.lane_sizes.rounded, products=products)
        lanes, parts = _lanes(num_steps, objective, products)
        begun = [
            tuple(correction.begin(task, memory, clients, lanes.part(part)) for correction in corrections)
            for part in parts
        ]
        steps = [
            LocalStep(objective, clients.transforms, self.direction, corrections, self.update, self.accumulate)
            for corrections in begun
        ]
        if any(split_tensors(corrections) is None for corrections in begun):
            rounded = None  # a step may change what is no tensor, so that the results of finished clients are not kept
        descent = Descent.of(planned, task, lanes.order, clients, self.lr, self.per_step, first, masked, rounded)
        rows = {name: to_device(memory[name][lanes.order], task.params.device) for name in self.state_names}
        state = StepState.of(descent, self.update, {name.removeprefix(PREFIX): row for name, row in rows.items()})
        delta, loss = take_steps(steps, parts, descent, state, clients)
        moved = [delta[part] for part in parts]
        changed, remembered, sent = outcome(begun, moved, delta)
        if task.phase != "prepare":
            remembered |= {name: state.moments[name.removeprefix(PREFIX)] for name in self.state_names}
        for name, values in remembered.items():
            memory[name] = lanes.back(values).to(memory[name].device)
        return Report(
            client=clients.ids,
            version=task.versions(len(clients)),
            num_examples=clients.num_examples,
            num_steps=num_steps,
            delta=lanes.back(sent),
            extra={name: lanes.back(values) for name, values in changed.items()},
            seen={"loss": lanes.back(loss)},
        )


def _lanes(num_steps: np.ndarray, objective: Objective, products: int) -> tuple[Lanes, list[slice]]:
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
