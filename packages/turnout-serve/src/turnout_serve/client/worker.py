"""Compute the tasks of one client: `client_step` for a single client, on data that never leave this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from turnout.base.client_step import client_step
from turnout.core.numerics import default_settings
from turnout.core.types import Report, State, Task
from turnout.population.behavior import BoundAttack
from turnout.protocol.secure.masker import Masker
from turnout.protocol.secure.masking import Masking
from turnout.protocol.survey import FIRST_TASK, SURVEYS
from turnout_serve.client.computer import Computer
from turnout_serve.client.opting import ClientRequirement
from turnout_serve.client.repeats import Repeats
from turnout_serve.client.sum_history import SumHistory
from turnout_serve.client.survey_worker import SurveyWorker
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import WireError, encode
from turnout_serve.wire.messages import report_body


class Worker:
    """Compute the tasks of one client.

    Args:
        computer: model, algorithm and data of all clients of this machine.
        row: row of the client's data.
        behavior: how an attacker changes its reports, for swarms; None for an honest client.
        allows: which of ``"evaluations"`` and ``"queries"`` it answers, and ``"repeats"`` if more than once.
        functions: functions of inputs and targets of its examples, by the names that a query may ask for.

    Attributes:
        model: types and shapes of the tensors that are downloaded with a task.
        takes_part: function that returns whether the client takes part with a model, see `ClientRequirement.is_met`.
        sends: function that records what the report on a task gives away, before it is sent.
    """

    def __init__(
        self,
        computer: Computer,
        row: int = 0,
        behavior: BoundAttack | None = None,
        allows: Collection[str] = ("evaluations", "queries"),
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._computer, self._row, self._behavior = computer, row, behavior
        self._requirement = ClientRequirement(computer, row)
        self._surveys = SurveyWorker(computer, row, self._requirement, allows, functions or {})
        self._algorithm = computer.experiment.algorithm
        masking: Masking | None = getattr(self._algorithm.aggregation, "masking", None)
        self._repeats = Repeats(
            masking, computer.experiment.data.widths, noised=self._surveys.noised, allowed="repeats" in allows
        )
        self.model, self.takes_part, self.sends = computer.model, self._requirement.is_met, self._repeats.sends
        extra = self._algorithm.aggregation.extra
        self._phases = None if extra is None else Masker(extra)

    def first_memory(self) -> State:
        """Return the memory of the client before its first task."""
        return {name: row.clone() for name, row in self._computer.memory.items()}

    def declines(self, task: Assignment) -> str | None:
        """Return why the client declines a task before it downloads the model; None where it does not."""
        trains = task.phase in self._algorithm.phases
        return (None if trains else self._surveys.declines(task)) or self._repeats.declines(task)

    def remembers(self, sums: SumHistory) -> None:
        """Set what the client has sent to sums."""
        self._repeats.history = sums

    @default_settings()
    def do(self, client: int, task: Assignment, model: State, memory: State) -> tuple[bytes, State] | None:
        """Do a task: return the body of the report, and the memory of the client once it is taken.

        None gives the task up.

        Raises:
            WireError: if the task is of another algorithm.
        """
        result = self._message(client, task, model, memory)
        if result is not None:
            self._repeats.begins(task)
        return result

    def _message(self, client: int, task: Assignment, model: State, memory: State) -> tuple[bytes, State] | None:
        """Return the message on a task, and the memory of the client once it is taken; None gives the task up."""
        if task.phase in SURVEYS or task.task >= FIRST_TASK:
            body = self._surveys.do(client, task, model, memory)
            return None if body is None else (body, memory)
        self._computer.check(task)
        if self._phases is not None and task.phase in self._algorithm.extra_phases:
            return phase_message(self._phases, task, memory)
        report, after = self._step(client, task, model, memory)
        if self._phases is None or task.phase != "train":
            return report_body(report), after
        tensors = self._phases.announce(client, task.version, report, after)
        return None if tensors is None else (encode(tensors), memory)

    def _step(self, client: int, task: Assignment, model: State, memory: State) -> tuple[Report, State]:
        """Take the client's step; return its report, and its memory afterwards."""
        computer = self._computer
        params, shared = computer.received(model)
        repeat = np.array([task.repeat], dtype=np.int64) if task.repeat else None
        seed = computer.experiment.seed
        request = Task(params, task.version, seed, task.phase, shared, task.tensors(), repeat)
        rows = {name: value[None].clone() for name, value in memory.items()}
        clients = replace(computer.clients(client, self._row), requirement=self._requirement.bound(client))
        report, rows = client_step(self._algorithm, request, rows, clients)
        return self._attacked(report, request), {name: value[0] for name, value in rows.items()}

    def _attacked(self, report: Report, task: Task) -> Report:
        """Return a report as an attacker changes it, encoded again where it is compressed."""
        if self._behavior is None:
            return report
        changed, coding = self._behavior.sent(report), self._computer.coding
        return changed if changed is report or coding is None else coding.again(changed, task)


def phase_message(side: Masker, task: Assignment, memory: State) -> tuple[bytes, State] | None:
    """Do the task of an extra phase: return the body and the memory; None where the client drops out."""
    try:
        inputs = {name: value[0] for name, value in task.tensors().items()}
    except WireError as error:
        side.drop_out(str(error))
        return None
    done = side.answer(task.phase, task.version, inputs, memory)
    return None if done is None else (encode(done[0]), done[1])
