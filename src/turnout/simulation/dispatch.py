"""Simulated clients do their tasks: as many at a time as fit the memory budget, each process its share of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from turnout.core.checks import ConfigurationError
from turnout.core.types import Report, State, Task
from turnout.distributed import collectives
from turnout.engine.cohort import Clients
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.base.client_step import client_step
from turnout.population import BoundAttack, BoundSpeed
from turnout.protocol.batch import Batch, Stepped
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.pace import Gather, Step
from turnout.protocol.streaming import ReportBuffer, StreamingSum, of_groups
from turnout.simulation.memory import ClientMemory
from turnout.simulation.opt_in import OptIn
from turnout.simulation.sharding import remember, together
from turnout.simulation.workspace import Workspace, chunks


@dataclass(eq=False)
class SimulatedClients:
    """All clients of a federation, on this machine.

    Attributes:
        algorithm: what they run.
        workspace: model and data.
        memory: what they remember.
        opt_in: what they require of a model.
        speed: how fast they are; None where there is no clock.
        behaviour: who of them lies; None is nobody.
        message_bytes: size of a report, and of what a client receives; None until one of them has done its task, to see.
    """

    algorithm: Algorithm
    workspace: Workspace
    memory: ClientMemory
    opt_in: OptIn
    speed: BoundSpeed | None
    behaviour: BoundAttack | None
    message_bytes: tuple[int, int] | None = None

    def step(self, ids: np.ndarray, task: Task) -> tuple[Report, State]:
        """Return what different clients report of a task, and what they would remember; they lie about nothing here."""
        lanes = replace(self._timed(ids), requirement=self.opt_in.requirement)
        return client_step(self.algorithm, task, self.memory.gather(ids), lanes)

    def num_steps(self, ids: np.ndarray, task: Task) -> np.ndarray:
        """Return how many local steps clients take with a task, int64 ``[B]``."""
        return self.algorithm.local.num_steps(task, self._timed(ids))

    def _timed(self, ids: np.ndarray) -> Clients:
        """Return clients who know how fast they are, and how large messages."""
        return replace(self.workspace.clients(ids), speed=self.speed, message_bytes=self.message_bytes)

    @property
    def collude(self) -> bool:
        """Whether attackers have to see all updates of a step, which then cannot be summed as they come in."""
        return self.behaviour is not None and self.behaviour.options.colludes

    def colluded(self, coordinator: Coordinator, reports: Report) -> Report:
        """Return the reports of a step as they reach the server, once colluding attackers have seen those of the others.

        Raises:
            ConfigurationError: where attackers try out an aggregation that remembers updates.
        """
        if self.behaviour is None or not len(reports):
            return reports
        aggregation, federation = self.algorithm.aggregation, coordinator.federation
        state = coordinator.state.slots["aggregation"]

        def direction(tried: Report) -> torch.Tensor:
            if aggregation.mutated_rows(tried, state) != {}:
                raise ConfigurationError(
                    f"behaviour: {type(aggregation).__name__} remembers the updates of every client, and trying an attack "
                    "would change what it remembers: use another attack than WorstCase"
                )
            even = torch.full((len(tried),), 1.0 / len(tried), dtype=torch.float64, device=federation.device)
            return aggregation.apply(even, tried, state, federation)[0]

        return self.behaviour.colluded(reports, direction)

    def reports_of(self, coordinator: Coordinator, batch: Batch) -> Report:
        """Return the reports of a batch, trained now; a client that is in it several times does one task after the other.

        Of several processes each has its share of the clients; one without any does what another does, and reports nothing
        of it, to know what is in a report. Of the phases after training all that matters is who completes them.
        """
        if not len(batch) or batch.phase in self.algorithm.aggregation.phases:
            return coordinator.no_reports()
        reports, order = [], []
        together_in = batch.turn if batch.group_of is None else batch.group_of
        for number in np.unique(together_in).tolist():
            rows = np.flatnonzero(together_in == number)
            mine, parts = collectives.share(len(rows)), self._buffer(coordinator, batch, rows)
            idle = mine.start == mine.stop
            for some in chunks(slice(0, 1) if idle else mine, self.workspace.lanes):
                clients = batch.clients[rows[some]]
                report, memory = self.step(clients, coordinator.task(batch, rows[some]))
                if batch.phase != "measure":
                    self.memory.scatter(clients, memory)
                report = report if self.behaviour is None else self.behaviour.sent(report)
                parts.add(report.take(np.arange(0)) if idle else report)
            if batch.phase != "measure":
                remember(self.memory, batch.clients[rows], coordinator.federation.device)
            reports.append(together(parts.reports(), len(rows)))
            order.append(rows)
        if batch.group_of is not None:
            return of_groups(reports).take(np.argsort(np.concatenate(order)))
        return reports[0] if len(reports) == 1 else Report.cat(reports).take(np.argsort(np.concatenate(order)))

    def _buffer(self, coordinator: Coordinator, batch: Batch, rows: np.ndarray) -> ReportBuffer:
        """Return what takes the reports of some rows: summed as they come in, where that is possible."""
        if not batch.is_streamable:
            return ReportBuffer()
        version = None if batch.group_of is None else int(batch.versions[rows[0]])
        alone = collectives.world_size() == 1 and len(rows) <= self.workspace.lanes and version is None
        return StreamingSum(self.algorithm, coordinator.state, coordinator.federation, alone, version)

    def stepped(self, action: Step | Gather, stepped: Stepped | None) -> None:
        """Nothing: what clients remember has moved when they trained."""

    def unusable(self, error: Exception, action: Step | Gather) -> None:
        """Blame no report: a simulation ends with the error."""
