"""Take the steps of several runs in lock-step, and train the clients of all of them together."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
import torch

from turnout.base.client_step import client_step
from turnout.core.types import Task
from turnout.data.shards import Shards
from turnout.engine.cohort import Clients
from turnout.simulation.dispatch import Assignment, Outcome, Steps, Value

LOG = logging.getLogger(__name__)


def together(runs: Sequence[Steps[Value]]) -> list[Value]:
    """Take the steps of runs in lock-step, and return their values.

    Clients of different runs whose local steps are the same computation train in one call, each from the model of its run,
    on its data and with its random numbers. On a CPU, results have the same bits as those of one run after another.
    """
    cohort, values = JointCohort(), dict[int, Value]()
    outcomes: dict[int, Outcome | BaseException | None] = dict.fromkeys(range(len(runs)))
    while outcomes:
        assignments = dict[int, Assignment]()
        for i, outcome in outcomes.items():
            try:
                is_error = isinstance(outcome, BaseException)
                assignments[i] = runs[i].throw(outcome) if is_error else runs[i].send(outcome)  # type: ignore[arg-type]
            except StopIteration as end:
                values[i] = end.value
        outcomes = dict(zip(assignments, cohort.outcomes(list(assignments.values())), strict=True))
    return [values[i] for i in range(len(runs))]


class JointCohort:
    """Carry out the assignments of several runs, those of the same kind in one call."""

    def __init__(self) -> None:
        self._joined = dict[Hashable, tuple[tuple[Shards, ...], Shards]]()

    def outcomes(self, assignments: Sequence[Assignment]) -> list[Outcome | BaseException]:
        """Return the outcome of each assignment, or the error that it raises."""
        groups = dict[Hashable, list[Assignment]]()
        for assignment in assignments:
            kind = self._kind(assignment) if len(assignments) > 1 else None
            groups.setdefault(kind or assignment, []).append(assignment)
        outcomes = dict[Assignment, Outcome | BaseException]()
        for kind, group in groups.items():
            outcomes |= zip(group, self._of_group(kind, group), strict=True)
        return [outcomes[assignment] for assignment in assignments]

    def _kind(self, assignment: Assignment) -> Hashable:
        """Return a value that is equal for assignments of one kind; None if it has to be carried out alone."""
        workers, task = assignment.workers, assignment.task
        if task.phase != "train" or task.shared or task.repeat_index is not None or task.round is not None:
            return None
        return workers.work and (workers.work, *sorted(task.own))

    def _of_group(self, kind: Hashable, group: Sequence[Assignment]) -> Sequence[Outcome | BaseException]:
        """Return the outcomes of assignments of one kind, or the errors that they raise."""
        lanes = min(assignment.workers.workspace.lanes for assignment in group)
        if len(group) > 1 and sum(len(assignment.ids) for assignment in group) <= lanes:
            try:
                return self._joint(kind, group)
            except Exception as error:  # that of one run must not end the others
                LOG.info("runs in lock-step do not train together: %s: %s", type(error).__name__, error)
        return list(map(Assignment.outcome, group))

    def _joint(self, kind: Hashable, group: Sequence[Assignment]) -> list[Outcome]:
        """Return the outcomes of assignments of one kind, carried out in one call."""
        workers, ids = [one.workers for one in group], [one.ids for one in group]
        tasks, sizes = [(one.task, len(one.ids)) for one in group], [len(one.ids) for one in group]
        first, data = workers[0], tuple(one.workspace.data.train for one in workers)
        starts = np.cumsum([0, *(shards.num_clients for shards in data[:-1])])
        rows = [of_run + start for of_run, start in zip(ids, starts, strict=True)]
        objective, transforms = first.workspace.objective, first.workspace.data.transforms
        clients = Clients(np.concatenate(ids), np.concatenate(rows), self._shards(kind, data), objective, transforms)
        task = Task(
            torch.cat([task.params.expand(size, -1) for task, size in tasks]),
            np.concatenate([task.versions(size) for task, size in tasks]),
            np.concatenate([np.full(size, task.seed) for task, size in tasks]),
            own={name: torch.cat([task.own[name] for task, _ in tasks]) for name in tasks[0][0].own},
        )
        usual = objective.lane_sizes.usual
        if usual.issuperset(sizes):
            objective.lane_sizes = replace(objective.lane_sizes, usual=usual | {len(clients)})
        memories = [one.memory.gather(of_run) for one, of_run in zip(workers, ids, strict=True)]
        memory = {name: torch.cat([of_run[name] for of_run in memories]) for name in memories[0]}
        report, memory = client_step(first.algorithm, task, memory, clients)
        parts = np.split(np.arange(len(clients)), np.cumsum(sizes)[:-1])
        return [(report.take(part), {name: values[part] for name, values in memory.items()}) for part in parts]

    def _shards(self, kind: Hashable, data: tuple[Shards, ...]) -> Shards:
        """Return the examples of the clients of all runs; they are copied once."""
        if kind not in self._joined or self._joined[kind][0] != data:
            ends = np.cumsum([len(shards.y) for shards in data])
            offsets = [shards.offsets[1:] + end - len(shards.y) for shards, end in zip(data, ends, strict=True)]
            weights = [shards.weights for shards in data if shards.weights is not None]
            x, y = torch.cat([shards.x for shards in data]), torch.cat([shards.y for shards in data])
            joined = Shards(x, y, np.concatenate([[0], *offsets]), torch.cat(weights) if weights else None)
            self._joined[kind] = data, joined
        return self._joined[kind][1]
