"""Take the planned local steps of a cohort, and report their outcome."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.schedule import Schedule
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.base import Correction
from turnout.pieces.local.closure import outcome, sent
from turnout.pieces.local.descent import Descent, StepState
from turnout.pieces.local.local_step import Direction, LocalStep, take_steps
from turnout.pieces.local.minibatches import Plan
from turnout.pieces.local.update import Update

PREFIX = "solver."
"""Prefix of the names of a solver's state in client memory."""


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
    ) -> Report:
        """Train B clients from the task's parameters; return their reports, and store in `memory` what they keep.

        Clients with more steps continue after the others have finished.

        Args:
            planned: minibatches of the clients, `per_step` for each step.
            task, memory, clients, corrections: as in `Local.train`.
            first: loss ``[B]`` and gradient ``[B, P]`` of the first step, if they are known in advance; else None.
        """
        num_steps = planned.num_steps // self.per_step
        lanes = Lanes.by_steps(num_steps)
        descent = Descent.of(planned, task, lanes.order, clients, self.lr, self.per_step, first)
        rows = {name: to_device(memory[name][lanes.order], task.params.device) for name in self.state_names}
        state = StepState.of(descent, self.update, {name.removeprefix(PREFIX): row for name, row in rows.items()})
        objective = clients.objective
        products = planned.examples.shape[2] * self.per_step * objective.layout.num_params
        parts = objective.threads.parts(descent.num_steps, products, single=objective.engine == "one_by_one")
        begun = [
            tuple(correction.begin(task, memory, clients, lanes.part(part)) for correction in corrections)
            for part in parts
        ]
        steps = [
            LocalStep(objective, clients.transforms, self.direction, corrections, self.update, self.accumulate)
            for corrections in begun
        ]
        delta, loss = take_steps(steps, parts, descent, state, clients)
        moved = [delta[part] for part in parts]
        changed, remembered = outcome(begun, moved)
        if task.phase != "prepare":
            remembered |= {name: state.moments[name.removeprefix(PREFIX)] for name in self.state_names}
        for name, values in remembered.items():
            memory[name] = lanes.back(values).to(memory[name].device)
        return Report(
            client=clients.ids,
            version=task.versions(len(clients)),
            num_examples=clients.num_examples,
            num_steps=num_steps,
            delta=lanes.back(sent(begun, moved, delta)),
            extra={name: lanes.back(values) for name, values in changed.items()},
            seen={"loss": lanes.back(loss)},
        )
