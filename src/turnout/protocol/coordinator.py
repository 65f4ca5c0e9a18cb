"""Coordinate a federation without I/O, clock or data: pace, server step, and the state of the server.

A simulation in virtual time and a server on a network drive the same object; see decision 0008.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from turnout.core.checks import BudgetSpent
from turnout.core.device import to_device
from turnout.core.types import Federation, Info, Report, ServerState, State, Task
from turnout.pieces.base import RecordingSelection
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.base.rollback import Rollback
from turnout.pieces.base.server_step import server_prepares, server_step
from turnout.protocol.attendances import Attendances
from turnout.protocol.batch import Batch, Order, Stepped, with_repeats
from turnout.protocol.growth import grown
from turnout.protocol.influence import Influence
from turnout.protocol.limits import Participations
from turnout.protocol.pace import Ask, Gather, Phase, Step
from turnout.protocol.repeats import Repeats
from turnout.protocol.scheduler import DriverAction, Scheduler
from turnout.protocol.tensors import as_arrays, as_tensors, report_as_tensors, report_of_tensors


class Coordinator:
    """A server without I/O: it schedules tasks, takes server steps, and holds the state between them.

    Args:
        algorithm: the algorithm.
        params: the initial model, ``[P]``.
        federation: what the server knows about its clients.
        scheduler: schedules tasks and steps.
        rounds: the planned number of server steps; None is unlimited.
        records_influence: record the contributions of each client.
        sums_early: allow updates to be summed on arrival, if the algorithm allows it.
        blames: raise if a step overflows, so that the driver can determine the reports that cause it. Has no effect if
            reports change what clients remember and the server sums, or if leaving out a report would reveal something about
            its data.
        attack: in a simulation, the change that colluding attackers, who know all reports of a step, make to them.

    Attributes:
        state: the server's state; ``state.version`` counts the steps.
        federation: what the server knows about its clients; `enrol` increases N.
        scheduler: schedules tasks and steps.
        rounds: the planned number of server steps.
        models: the model ``[P]`` of each version that a report may still refer to.
        influence: the contributions of each client; None if they are not recorded.
        measured: the measurements before the cohort of the present round was selected; None if there were none.
        attendances: the clients in the phases after training.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        params: torch.Tensor,
        federation: Federation,
        scheduler: Scheduler,
        *,
        rounds: int | None = None,
        records_influence: bool = False,
        sums_early: bool = True,
        blames: bool = False,
        attack: Callable[[Coordinator, Report], Report] | None = None,
    ) -> None:
        self.algorithm, self.federation, self.scheduler, self.rounds = algorithm, federation, scheduler, rounds
        self.state: ServerState = algorithm.init(params, federation)
        self.models = {0: self.state.params}
        self.influence = Influence(federation.num_clients) if records_influence else None
        self._attack = attack
        self._sums_early = algorithm.sums_early and sums_early
        aggregation = algorithm.aggregation
        self._blames = blames and not (algorithm.keeps or aggregation.mirrors_clients or aggregation.nulls_dropped)
        self.measured: Report | None = None
        self._prepared: Report | None = None
        self._trained = Repeats(federation.num_clients)
        self._took_part = Participations(federation.num_clients, algorithm.aggregation.limit)
        if self._took_part.limit is not None:
            self.scheduler.cohorts.allow(self._took_part.may)
        if isinstance(algorithm.selection, RecordingSelection):
            self.scheduler.cohorts.recall(lambda: self.state.slots["selection"])
        self.attendances = Attendances(aggregation, federation.seed, self._took_part)
        if aggregation.phases:
            self.scheduler.ask_phase = self.attendances.ask
        self._enrolled = federation.num_clients
        self._shared: tuple[ServerState | None, State] = (None, {})

    @property
    def _mixes(self) -> bool:
        """True if a step may use reports of several versions."""
        return self.scheduler.pace.mixes_versions

    @property
    def _repeats(self) -> bool:
        """True if the cohort contains a client twice."""
        cohort = self.scheduler.cohort
        return not self._mixes and len(cohort) > 1 and bool((cohort[1:] == cohort[:-1]).any())

    @property
    def over(self) -> str | None:
        """The reason why there are no further steps; None if there may be one."""
        if self.rounds is not None and self.state.version >= self.rounds:
            return "the run is over"
        return self._exhausted()

    def _exhausted(self) -> str | None:
        """Return why the next step would exceed the privacy budget; None if it would not."""
        plan = self.algorithm.privacy
        plan = None if plan is None or plan.budget is None else plan.of(self.state.slots["aggregation"])
        known = self.federation.lost_releases, self.federation.noised_answers
        return None if plan is None else plan.exhausted(self.state.version, self.rounds, *known)

    def settle(self, searched: list[float]) -> None:
        """Restore the noise correlation that was searched at the start of this run."""
        slots = self.state.slots
        slots["aggregation"] = self.algorithm.aggregation.settled(slots["aggregation"], searched)

    def noise_of(self, secret: int | None, lost_releases: tuple[tuple[int, int], ...]) -> None:
        """Set the secret from which the noise of the next step derives, and account for lost releases."""
        self.federation = replace(self.federation, secret=secret, lost_releases=lost_releases)

    def count_answers(self, number: int) -> None:
        """Set the number of noised answers to evaluations and queries that count towards the privacy budget."""
        self.federation = replace(self.federation, noised_answers=number)

    def next(self, time: float) -> DriverAction | None:
        """Return the next action, as `Scheduler.next`."""
        return self.scheduler.next(time)

    def batch(self, action: Step | Gather) -> Batch:
        """Return the tasks of a step or of a completed phase, in the order in which their reports are to be passed."""
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
        return Batch(phase, self.state.version, tasks, clients, versions, turn, repeat_index, streams, groups, group_of)

    def present_batch(self, clients: np.ndarray, phase: Phase) -> Batch:
        """Return a batch of tasks from the present model that the pace did not send, for different clients, ascending."""
        versions = np.full(len(clients), self.state.version)
        zero = np.zeros_like(clients)
        return Batch(phase, self.state.version, zero - 1, clients, versions, zero, None, False)

    def task(self, batch: Batch, rows: np.ndarray | slice) -> Task:
        """Return the task of the clients in these rows of a batch, for a simulation that trains them together."""
        inputs = self.algorithm.per_client_inputs(batch.clients[rows], self.state, self.federation)
        if not self._mixes:
            version = -1 if batch.phase == "prepare" else batch.version
            return Task(self.state.params, version, self.federation.seed, batch.phase, self.shared(), inputs)
        used, model_rows = np.unique(batch.versions[rows], return_inverse=True)
        models = [self.models[version] for version in used.tolist()]
        params = models[0]
        if len(models) > 1:
            params = torch.stack(models)[to_device(model_rows, params.device)]
        again = None if batch.repeat_index is None else batch.repeat_index[rows]
        present = batch.version if self.algorithm.continues else None
        return Task(params, batch.versions[rows], self.federation.seed, batch.phase, {}, inputs, again, present)

    def shared(self) -> State:
        """Return the tensors that are broadcast with the model; they are the same for all tasks until the next step."""
        if self._shared[0] is not self.state:
            self._shared = self.state, self.algorithm.shared(self.state)
        return self._shared[1]

    def orders(self, ask: Ask) -> list[Order]:
        """Return the orders of new tasks, one for each client. Call it before the next call of `next`."""
        self._grow()
        inputs = self.algorithm.per_client_inputs(np.array(ask.clients, dtype=np.int64), self.state, self.federation)
        pending = self.scheduler.pace.pending() if self._mixes else []
        return [
            Order(
                task, client, ask.version, ask.phase,
                self._trained.so_far(client, ask.version, pending) if self._mixes else 0,
                {name: values[row : row + 1] for name, values in inputs.items()},
            )
            for row, (task, client) in enumerate(zip(ask.tasks, ask.clients, strict=True))
        ]  # fmt: skip

    def no_reports(self) -> Report:
        """Return an empty report."""
        return Report.empty(self.state.params)

    def take(self, batch: Batch, reports: Report) -> Stepped | None:
        """Process the reports of a batch, in its order: take a step after training, and gather them otherwise."""
        if batch.phase == "train":
            return self.step(batch, reports)
        self.gathered(batch, reports)
        return None

    def gathered(self, batch: Batch, reports: Report) -> None:
        """Process the reports of a phase that leaves the model unchanged. Call it before the next call of `next`."""
        if batch.phase == "prepare":
            self.state = server_prepares(self.algorithm, self.state, reports, self.federation)
            self.models[self.state.version] = self.state.params
            self._prepared = reports
            return
        if batch.phase in self.algorithm.aggregation.phases:
            self.attendances.gathered(batch)
            return
        self.measure_by(self._counted(reports))

    def step(self, batch: Batch, reports: Report) -> Stepped:
        """Take the server step with the reports of a batch, in its order. Call it before the next call of `next`.

        Args:
            batch: the tasks of the step.
            reports: their reports.

        Raises:
            BudgetSpent: if the step would exceed the privacy budget.
        """
        if (why := self._exhausted()) is not None:
            raise BudgetSpent(why)
        reports, early = self._in_time(self._complete(self._counted(reports)))
        if self._attack is not None:
            reports = self._attack(self, reports)
        needed = self.scheduler.pace.versions()
        before = self.state
        self.state, info = self._stepped(reports)
        info |= early
        if early:
            self._took_part.note(reports.client, before.version)
        self._note(batch, reports, info)
        models = {version: model for version, model in self.models.items() if version in needed}
        self.models = models | {self.state.version: self.state.params}
        prepared, self._prepared, self.measured = self._prepared, None, None
        self.attendances.keep(self.scheduler.pace.live_groups)
        return Stepped(reports, info, before.version, prepared)

    def check(self, batch: Batch, reports: Report) -> None:
        """Try a batch without changing any state: raise the error that its step would raise."""
        undo = Rollback.of(self.algorithm, self.state, reports)
        try:
            if batch.phase == "train":
                reports, _ = self._in_time(self._complete(self._counted(reports)))
                self._stepped(reports)
            elif batch.phase == "prepare":
                server_prepares(self.algorithm, self.state, reports, self.federation)
        finally:
            undo()

    def _stepped(self, reports: Report) -> tuple[ServerState, Info]:
        """Return the state after a step and its info. If a piece raises, the state is unchanged.

        A selection may raise because of its record of a report only when it selects the next cohort, where the report is no
        longer known. Drivers that blame reports therefore try the selection with the step.
        """
        step = partial(server_step, self.algorithm, self.state, reports, self.federation, refuses_overflow=self._blames)
        if not (isinstance(self.algorithm.selection, RecordingSelection) and self._blames):
            return step()
        undo, check = Rollback.of(self.algorithm, self.state, reports), self.scheduler.cohorts.check
        state, info = step()
        try:
            check(state.slots["selection"], state.version)
        except Exception as error:
            undo()
            try:
                check(self.state.slots["selection"], state.version)
            except Exception:  # whatever the reports are: the next choice raises
                return step()
            raise error
        return state, info

    def measure_by(self, measured: Report) -> None:
        """Use these measurements to select the next cohort and to take the next step."""
        self.measured = measured
        self.scheduler.cohorts.measured(measured)

    def _in_time(self, reports: Report) -> tuple[Report, Info]:
        """Return the reports of clients that may participate again; if there is a limit, also the number of the others."""
        if self._took_part.limit is None:
            return reports, {}
        version = self.state.version
        may = self._took_part.may(reports.client, version)
        in_time = reports if may.all() else reports.take(may.nonzero()[0])
        return in_time, {"num_too_early": int((~may).sum())}

    def _counted(self, reports: Report) -> Report:
        """Return the reports, with two rows for a client that is in the cohort twice."""
        return with_repeats(reports, self.scheduler.cohort) if self._repeats else reports

    def _complete(self, reports: Report) -> Report:
        """Return the reports with the measurements of the round, and with the offsets of the models that were trained."""
        if self.measured is not None:
            reports = replace(reports, measured=self.measured)
        stale = reports.version != self.state.version
        if not self.algorithm.aggregation.of_models or not stale.any():
            return reports
        used, rows = np.unique(reports.version, return_inverse=True)
        behind = torch.stack([self.models[version] - self.state.params for version in used.tolist()])
        return replace(reports, model_offset=behind[to_device(rows, behind.device)])

    def _note(self, batch: Batch, reports: Report, info: Info) -> None:
        """Record the contributions of clients."""
        if batch.repeat_index is not None:
            self._trained.note(batch.clients, batch.versions, batch.repeat_index)
        if self.influence is None or not len(info["weights"]):
            return
        if len(info["weights"]) < len(reports):
            reports = reports.screened()[0]
        self.influence.add(reports.client, batch.version - reports.version, info["weights"].cpu().numpy())

    def enrol(self) -> int:
        """Add a client to the federation and return its number. It is available after `joined`.

        Arrays with a row for each client grow when they are next used, once for all clients enrolled meanwhile. From then on
        N includes it: pieces that divide by N divide by the number of enrolled clients, or by the declared number of clients
        if that is larger.
        """
        self._enrolled += 1
        return self._enrolled - 1

    def _grow(self) -> None:
        """Extend the state to all enrolled clients."""
        before, more = self.federation, self._enrolled - self.federation.num_clients
        if not more:
            return
        self.federation = replace(before, num_clients=self._enrolled)
        self.state = grown(self.algorithm, self.state, before, self.federation)
        self._trained.grow(more)
        self._took_part.grow(more)
        self.scheduler.pace.grow(self._enrolled)
        if self.influence is not None:
            self.influence.grow(more)

    def state_groups(self) -> dict[str, State]:
        """Return the whole state in groups of tensors. Call it when `next` returns None, or after `step`."""
        groups = {f"server.{slot}": state for slot, state in self.state.slots.items()}
        groups |= {f"schedule.{name}": as_tensors(arrays) for name, arrays in self.scheduler.state().items()}
        facts = {"versions": np.array(list(self.models)[:-1], dtype=np.int64), "enrolled": np.array(self._enrolled)}
        facts |= self._trained.state() | self._took_part.state() | {"version": np.array(self.state.version)}
        facts |= {"clients": np.array(self.federation.num_clients)}  # clients that enrolled since then have no rows yet
        facts |= {} if self.influence is None else self.influence.state()
        facts |= self.attendances.state()
        earlier = {str(version): model for version, model in self.models.items() if version != self.state.version}
        all_groups = groups | {
            "model": {"params": self.state.params},
            "coordinator": as_tensors(facts),
            "models": earlier,
        }
        return all_groups if self.measured is None else all_groups | {"measured": report_as_tensors(self.measured)}

    def restore(self, group: Callable[[str], State]) -> None:
        """Restore the state that `state_groups` returned, group by group, in place of starting the scheduler.

        Raises:
            ValueError: for a model or a slot of the server with another shape or type.
        """
        arrays = as_arrays(group("coordinator"))
        self._enrolled = int(arrays.get("clients", arrays["enrolled"]))
        self._grow()
        device = self.federation.device
        slots = {}
        for slot, fresh in self.state.slots.items():
            saved = group(f"server.{slot}")
            slots[slot] = {name: _like(fresh[name], saved[name], name) for name in fresh}
        params = _like(self.state.params, group("model")["params"], "params")
        self.state = ServerState(params, int(arrays["version"]), slots)
        models = group("models")
        earlier = {version: models[str(version)].to(device) for version in arrays["versions"].tolist()}
        self.models = earlier | {self.state.version: self.state.params}
        self._trained.restore(arrays)
        self._took_part.restore(arrays)
        self._enrolled = int(arrays["enrolled"])
        if self.influence is not None and "contributions" in arrays:  # checkpoints of earlier versions may lack it
            self.influence.restore(arrays)
        self.scheduler.restore({name: as_arrays(group(f"schedule.{name}")) for name in self.scheduler.state()})
        self._check_schedule()
        self.attendances.restore(arrays, self.state.version)
        self.measured = None
        if measured := group("measured"):
            self.measure_by(report_of_tensors(measured, device))

    def _check_schedule(self) -> None:
        """Check that the clients and versions of a restored schedule exist.

        Raises:
            ValueError: for the first of them.
        """
        pace = self.scheduler.pace
        clients = {*pace.busy(), *(client for _, client, _ in pace.pending()), *self.scheduler.cohort.tolist()}
        if unknown := [client for client in clients if not 0 <= client < self._enrolled]:
            raise ValueError(f"schedule: client {unknown[0]} of {self._enrolled} clients")
        if missing := sorted(pace.versions() - self.models.keys()):
            raise ValueError(f"schedule: a task with version {missing[0]} of the model, which is missing")


def _like(fresh: torch.Tensor, saved: torch.Tensor, name: str) -> torch.Tensor:
    """Return a saved tensor on the device of that before the first step, whose shape and type it must have."""
    if (saved.shape, saved.dtype) != (fresh.shape, fresh.dtype):
        got, needed = (f"{it.dtype} {list(it.shape)}" for it in (saved, fresh))
        raise ValueError(f"{name}: got {got}, needed {needed}")
    return saved.to(fresh.device)
