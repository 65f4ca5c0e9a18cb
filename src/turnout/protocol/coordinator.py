"""Coordinate a federation without I/O, clock or data: schedule tasks, and pass the reports of clients to the server.

A simulation in virtual time and a server on a network drive the same object; see decision 8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from turnout.core.device import to_device
from turnout.core.types import Report, State, Task
from turnout.protocol.attendances import Attendances
from turnout.protocol.batch import Batch, Order, Stepped, with_repeats
from turnout.protocol.client_arrays import Repeats
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.pace import Ask, Gather, Step
from turnout.protocol.scheduler import DriverAction, Scheduler
from turnout.protocol.tensors import as_arrays, as_tensors


class Coordinator:
    """Turn the actions of a scheduler into tasks, and pass the reports of clients to the server.

    Args:
        server: federated server, which holds the model and takes server steps.
        scheduler: scheduler of tasks and steps.
        sums_early: whether updates may be summed on arrival, if the algorithm allows it.

    Attributes:
        server: federated server.
        scheduler: scheduler of tasks and steps.
        attendances: clients in the phases after training.
    """

    def __init__(self, server: FederatedServer, scheduler: Scheduler, *, sums_early: bool = True) -> None:
        self.server, self.scheduler = server, scheduler
        extra, federation = server.algorithm.aggregation.extra, server.federation
        # Without shared parameters there is nothing to sum.
        self._sums_early = server.algorithm.sums_early and sums_early and server.state.params.numel() > 0
        self._trained = Repeats(federation.num_clients)
        self.attendances = Attendances(extra, federation.seed, server.participations)
        if extra is not None:
            scheduler.ask_phase = self.attendances.ask
        self._enrolled = federation.num_clients

    @property
    def _mixes(self) -> bool:
        """True if a step may use reports of several versions."""
        return self.scheduler.pace.mixes_versions

    @property
    def _repeats(self) -> bool:
        """True if the cohort of a step contains a client twice."""
        return not self._mixes and self.scheduler.repeats

    def next(self, time: float) -> DriverAction | None:
        """Return the next action, as `Scheduler.next` does."""
        return self.scheduler.next(time)

    def batch(self, action: Step | Gather) -> Batch:
        """Return the tasks of a step or of a completed phase, in the order in which `take` expects their reports."""
        self._grow()
        if isinstance(action, Step):
            action = self.attendances.summed(action)
        columns = (action.tasks, action.clients, action.versions)
        tasks, clients, versions = (np.array(column, dtype=np.int64) for column in columns)
        # A stable order: the tasks of one client stay in the order in which their reports arrived.
        order = np.argsort(clients, kind="stable")
        tasks, clients, versions = tasks[order], clients[order], versions[order]
        turn = np.arange(len(clients)) - np.searchsorted(clients, clients)
        once = not turn.any() and not self._repeats
        phase, groups = action.phase, tuple(action.groups)
        streams = phase == "prepare" or (phase == "train" and self._sums_early and once)
        repeat_index = self._trained.of_batch(clients, versions, turn) if self._mixes else None
        group_of = self.attendances.group_of(groups, clients) if phase == "train" else None
        version = self.server.state.version
        return Batch(phase, version, tasks, clients, versions, turn, repeat_index, streams, groups, group_of)

    def task(self, batch: Batch, rows: np.ndarray | slice) -> Task:
        """Return the task of the clients in some rows of a batch, for a simulation that trains them together."""
        server = self.server
        state, seed = server.state, server.federation.seed
        inputs = server.algorithm.per_client_inputs(batch.clients[rows], state, server.federation)
        if not self._mixes:
            version = -1 if batch.phase == "prepare" else batch.version
            return Task(state.params, version, seed, batch.phase, server.shared(), inputs)
        used, model_rows = np.unique(batch.versions[rows], return_inverse=True)
        models = [server.models[version] for version in used.tolist()]
        params = models[0]
        if len(models) > 1:
            params = torch.stack(models)[to_device(model_rows, params.device)]
        again = None if batch.repeat_index is None else batch.repeat_index[rows]
        present = batch.version if server.algorithm.continues else None
        return Task(params, batch.versions[rows], seed, batch.phase, {}, inputs, again, present)

    def orders(self, ask: Ask) -> list[Order]:
        """Return the orders of new tasks, one for each client. Call it before the next call of `next`."""
        self._grow()
        clients, server = np.array(ask.clients, dtype=np.int64), self.server
        inputs = server.algorithm.per_client_inputs(clients, server.state, server.federation)
        pending = self.scheduler.pace.pending() if self._mixes else []
        return [
            Order(
                task, client, ask.version, ask.phase,
                self._trained.so_far(client, ask.version, pending) if self._mixes else 0,
                {name: values[row : row + 1] for name, values in inputs.items()},
            )
            for row, (task, client) in enumerate(zip(ask.tasks, ask.clients, strict=True))
        ]  # fmt: skip

    def take(self, batch: Batch, reports: Report) -> Stepped | None:
        """Process the reports of a batch, in its order: take a step after training, and gather them in other phases."""
        if batch.phase == "train":
            return self.step(batch, reports)
        self.gathered(batch, reports)
        return None

    def gathered(self, batch: Batch, reports: Report) -> None:
        """Process the reports of a phase that leaves the model unchanged. Call it before the next call of `next`."""
        if batch.phase == "prepare":
            self.server.prepare(reports)
        elif batch.phase in self.server.algorithm.extra_phases:
            self.attendances.gathered(batch)
        else:
            self.server.measure_by(self._counted(reports))

    def step(self, batch: Batch, reports: Report) -> Stepped:
        """Take the server step with the reports of a batch, in its order. Call it before the next call of `next`.

        Raises:
            BudgetSpent: if the step would exceed the privacy budget.
        """
        stepped = self.server.step(self._counted(reports), self.scheduler.pace.versions())
        if batch.repeat_index is not None:
            self._trained.note(batch.clients, batch.versions, batch.repeat_index)
        self.attendances.keep(self.scheduler.pace.live_groups)
        return stepped

    def check(self, batch: Batch, reports: Report) -> None:
        """Try a batch without changing any state, and raise the error that its step would raise."""
        self.server.check(batch.phase, self._counted(reports) if batch.phase == "train" else reports)

    def _counted(self, reports: Report) -> Report:
        """Return the reports, with two rows for a client that is in the cohort twice."""
        return with_repeats(reports, self.scheduler.cohort) if self._repeats else reports

    def enroll(self) -> int:
        """Add a client to the federation and return its number. It is available after `joined`.

        Arrays with a row for each client grow when they are next used, once for all clients enrolled meanwhile. From then on
        N includes it: pieces that divide by N divide by the number of enrolled clients, or by the declared number of clients
        if that is larger.
        """
        self._enrolled += 1
        return self._enrolled - 1

    def _grow(self) -> None:
        """Extend the state to all enrolled clients."""
        if more := self._enrolled - self.server.federation.num_clients:
            self.server.grow(self._enrolled)
            self._trained.grow(more)
            self.scheduler.pace.grow(self._enrolled)

    def state_groups(self) -> dict[str, State]:
        """Return the whole state in groups of tensors. Call it when `next` returns None, or after `step`."""
        # Clients that have enrolled since the arrays last grew have no rows yet.
        facts = self.server.arrays() | {"enrolled": np.array(self._enrolled)}
        facts |= self._trained.state() | self.attendances.state()
        schedule = {f"schedule.{name}": as_tensors(arrays) for name, arrays in self.scheduler.state().items()}
        return self.server.groups() | schedule | {"coordinator": as_tensors(facts)}

    def restore(self, group: Callable[[str], State]) -> None:
        """Restore the state that `state_groups` returned, group by group, in place of starting the scheduler.

        Raises:
            ValueError: if the model or a slot of the server has another shape or type.
        """
        arrays = as_arrays(group("coordinator"))
        self._enrolled = int(arrays.get("clients", arrays["enrolled"]))
        self._grow()
        self.server.restore(arrays, group)
        self._trained.restore(arrays)
        self._enrolled = int(arrays["enrolled"])
        self.scheduler.restore({name: as_arrays(group(f"schedule.{name}")) for name in self.scheduler.state()})
        self._check_schedule()
        self.attendances.restore(arrays, self.server.state.version)

    def _check_schedule(self) -> None:
        """Check that the clients and versions of a restored schedule exist.

        Raises:
            ValueError: if one is missing; the message names the first.
        """
        pace = self.scheduler.pace
        clients = {*pace.busy(), *(client for _, client, _ in pace.pending()), *self.scheduler.cohort.tolist()}
        if unknown := [client for client in clients if not 0 <= client < self._enrolled]:
            raise ValueError(f"schedule: client {unknown[0]} of {self._enrolled} clients")
        if missing := sorted(pace.versions() - self.server.models.keys()):
            raise ValueError(f"schedule: a task with version {missing[0]} of the model, which is missing")
