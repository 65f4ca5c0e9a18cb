"""Run the tasks of simulated clients: in chunks that fit the memory budget, and each process a share of them."""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch

from turnout.base import CountsSteps, LossTerm, PoolsExamples
from turnout.base.algorithm import Algorithm
from turnout.base.client_step import client_step
from turnout.base.piece import mutated_rows
from turnout.core.checks import ConfigurationError
from turnout.core.kept import Kept
from turnout.core.lanes import Lanes
from turnout.core.types import Report, State, Task
from turnout.data.shards import Shards
from turnout.distributed import collectives
from turnout.engine.cohort import Clients
from turnout.population import BoundAttack, BoundSpeed
from turnout.protocol.batch import Batch
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.counts import CountLimits
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.streaming import ReportBuffer, StreamingSum, of_groups
from turnout.record.client_memory import ClientMemory
from turnout.simulation.opt_in import OptIn
from turnout.simulation.sharding import gather_reports, share_memory
from turnout.simulation.workspace import Workspace, chunks


@dataclass(eq=False)
class SimulatedClients:
    """All clients of a federation, on this machine.

    Attributes:
        algorithm: the algorithm.
        workspace: model and data.
        memory: memory of clients.
        opt_in: requirements of clients for a model.
        speed: the speed of clients; None without a clock.
        behavior: the attack of dishonest clients; None if all are honest.
        message_bytes: size of a report, and of what a client receives; None until measured.
        ahead: plan of the next task, if `PlanAhead` has made one.
    """

    algorithm: Algorithm
    workspace: Workspace
    memory: ClientMemory
    opt_in: OptIn
    speed: BoundSpeed | None
    behavior: BoundAttack | None
    message_bytes: tuple[int, int] | None = None
    ahead: Kept[Any] = field(default_factory=Kept)

    def check(self, task: Task) -> None:
        """Reject a deadline without what it needs, unfit terms of the loss, and attackers that would see hidden updates."""
        self._try_terms(task)
        if self.algorithm.local.traits.deadline is not None:  # raises an error if the population lacks a speed
            self.num_steps(np.zeros(0, dtype=np.int64), task)
        if self.algorithm.extra_phases and self.collude:
            name = type(self.algorithm.aggregation).__name__
            raise ConfigurationError(
                f"behavior: colluding attackers see the updates of all other clients, and {name} hides all updates: write "
                f"another attack, or leave {name} out"
            )

    def _try_terms(self, task: Task) -> None:
        """Compute each further term of the loss for one client on one example, which fails if it does not fit the model."""
        terms = [correction for correction in self.algorithm.corrections if isinstance(correction, LossTerm)]
        if not terms:
            return
        ids, lanes = np.zeros(1, dtype=np.int64), Lanes(np.arange(1), np.ones(1, np.int64))
        personal = self.algorithm.personal
        clients, memory = self.workspace.clients(ids), self.memory.gather(ids)
        joined = task if personal is None else replace(task, params=personal.join(task.params, memory))
        key = torch.zeros(1, dtype=torch.int64, device=task.params.device)
        x, _ = clients.minibatch(torch.zeros((1, 1), dtype=torch.int64, device=key.device), None)
        for term in terms:
            started, params = term.begin(joined, memory, clients, lanes), joined.params.expand(1, -1)
            if not isinstance(started, LossTerm):
                raise ConfigurationError(
                    f"{type(term).__name__} is a LossTerm, and its begin() returns {type(started).__name__}, which adds no "
                    f"term to the loss: derive {type(started).__name__} from LossTerm, too"
                )
            started.slope(clients.objective, params, x, None, key)

    def step(self, ids: np.ndarray, task: Task) -> tuple[Report, State]:
        """Return the honest reports of different clients on a task, and what they would remember."""
        lanes = replace(self.timed(ids), requirement=self.opt_in.requirement)
        return client_step(self.algorithm, task, self.memory.gather(ids), lanes)

    def num_steps(self, ids: np.ndarray, task: Task) -> np.ndarray:
        """Return the number of local steps of each client in a task, int64 ``[B]``."""
        local = self.algorithm.local
        return local.num_steps(task, self.timed(ids)) if isinstance(local, CountsSteps) else np.ones(len(ids), np.int64)

    def timed(self, ids: np.ndarray) -> Clients:
        """Return clients with their speed, the size of their messages and the plan of their task."""
        clients = self.workspace.clients(ids)
        if isinstance(self.algorithm.selection, PoolsExamples):
            clients = replace(clients, rows=np.zeros_like(ids), shards=self._pooled)
        return replace(clients, speed=self.speed, message_bytes=self.message_bytes, ahead=self.ahead)

    @cached_property
    def _pooled(self) -> Shards:
        """The training examples of all clients, as those of one."""
        train = self.workspace.data.train
        return replace(train, offsets=train.offsets[[0, -1]])

    @cached_property
    def work(self) -> Hashable:
        """The values that local steps depend on beside tasks and data, hashable; None if they may depend on more."""
        algorithm, objective, data = self.algorithm, self.workspace.objective, self.workspace.data
        # The bits of a measurement depend on whether all clients have the same model.
        more = algorithm.measurements or self.speed is not None or self.opt_in.requirement is not None
        if more or isinstance(algorithm.selection, PoolsExamples) or data.train.mapped or objective.network.reads_masks:
            return None
        pieces = algorithm.local, algorithm.corrections, algorithm.guard, algorithm.personal
        work = objective.network.identity, objective.loss, objective.weighted, objective.device, data.transforms, pieces
        try:
            hash(work)
        except TypeError:
            return None
        return work if objective.engine == "vectorized" and work[0] is not None else None

    @property
    def collude(self) -> bool:
        """True if attackers see all updates of a step, which therefore cannot be summed on arrival."""
        return self.behavior is not None and self.behavior.options.colludes

    def colluded(self, server: FederatedServer, reports: Report) -> Report:
        """Return the reports of a step after colluding attackers, who see all of them, have replaced their own.

        Raises:
            ConfigurationError: if an attack evaluates an aggregation that remembers updates.
        """
        if self.behavior is None or not len(reports):
            return reports
        aggregation, federation = self.algorithm.aggregation, server.federation
        state = server.state.slots["aggregation"]

        def direction(tried: Report) -> torch.Tensor:
            if mutated_rows(aggregation, tried, state) != {}:
                raise ConfigurationError(
                    f"behavior: {type(aggregation).__name__} keeps the updates of every client, and trying an attack "
                    "would change its memory: use another attack than WorstCase"
                )
            even = torch.full((len(tried),), 1.0 / len(tried), dtype=torch.float64, device=federation.device)
            return aggregation.apply(even, tried, state, federation)[0]

        return self.behavior.colluded(reports, direction)

    def reports_of(self, coordinator: Coordinator, batch: Batch) -> Steps[Report]:
        """Have the tasks of a batch trained, chunk by chunk, and return their reports.

        A client that is in a batch several times does one task after another. Each process trains a share of the clients; one
        whose share is empty trains a client of another process, to learn the form of a report, and reports nothing. Phases
        after training have no reports: only who completes them matters.
        """
        if not len(batch) or batch.phase in self.algorithm.extra_phases:
            return Report.empty(coordinator.server.state.params)
        part_of = batch.turn if batch.group_of is None else batch.group_of
        parts = [np.flatnonzero(part_of == number) for number in np.unique(part_of)]  # each is trained together
        reports = []
        for rows in parts:
            share, buffer = collectives.share(len(rows)), self._buffer(coordinator.server, batch, rows)
            is_empty = share.start == share.stop
            for chunk in chunks(slice(0, 1) if is_empty else share, self.workspace.lanes):
                clients = batch.clients[rows[chunk]]
                report, memory = yield Assignment(self, clients, coordinator.task(batch, rows[chunk]))
                if batch.phase != "measure":
                    self.memory.scatter(clients, memory)
                if self.behavior is not None:  # attackers may report any counts
                    report = CountLimits(self.algorithm.local).screened(self.behavior.sent(report))
                buffer.add(report.take(np.arange(0)) if is_empty else report)
            if batch.phase != "measure":
                share_memory(self.memory, batch.clients[rows], coordinator.server.federation.device)
            reports.append(gather_reports(buffer.reports(), len(rows)))
        if len(reports) == 1 and batch.group_of is None:
            return reports[0]
        joined = Report.cat(reports) if batch.group_of is None else of_groups(reports)
        return joined.take(np.argsort(np.concatenate(parts)))

    def _buffer(self, server: FederatedServer, batch: Batch, rows: np.ndarray) -> ReportBuffer:
        """Return a buffer for the reports of these rows, which sums updates on arrival where that is possible."""
        if not batch.is_streamable:
            return ReportBuffer()
        version = None if batch.group_of is None else int(batch.versions[rows[0]])
        alone = collectives.world_size() == 1 and len(rows) <= self.workspace.lanes and version is None
        return StreamingSum(self.algorithm, server.state, server.federation, alone, version)


@dataclass(frozen=True, eq=False)
class Assignment:
    """A task, and different clients of a run that are to do it.

    Attributes:
        workers: all clients of the run.
        ids: the clients, int64 ``[B]``.
        task: the task.
    """

    workers: SimulatedClients
    ids: np.ndarray
    task: Task

    def outcome(self) -> Outcome | BaseException:
        """Return what the clients report and would remember, or the error that the task raises, which is for their run."""
        try:
            return self.workers.step(self.ids, self.task)
        except BaseException as error:
            return error


Outcome = tuple[Report, State]
"""The reports of an assignment, and what its clients would remember."""

Value = TypeVar("Value")
Steps = Generator[Assignment, Outcome, Value]
"""A computation that yields each assignment, receives its outcome, and returns a value."""
