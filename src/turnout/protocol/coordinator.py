"""Coordinate a federation without I/O, clock and data: pace, server step, and the state of the server.

A simulation in virtual time and a server on a network drive the same object; decision 0008 says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from turnout.core.checks import BudgetSpent
from turnout.core.device import to_device
from turnout.core.types import Federation, Info, Report, ServerState, State, Task
from turnout.pieces.base import RecordingSelection
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.base.phases import Attendance
from turnout.pieces.base.rollback import Rollback
from turnout.pieces.base.server_step import server_prepares, server_step
from turnout.protocol.batch import Batch, Order, Stepped, with_repeats
from turnout.protocol.growth import grown
from turnout.protocol.influence import Influence
from turnout.protocol.limits import Participations
from turnout.protocol.pace import Ask, Choose, Gather, Phase, Step
from turnout.protocol.repeats import Repeats
from turnout.protocol.scheduler import Scheduler, Told
from turnout.protocol.tensors import as_arrays, as_tensors, report_as_tensors, report_of_tensors


class Coordinator:
    """A server without I/O: it schedules tasks, takes server steps, and holds the state between them.

    Args:
        algorithm: what it runs.
        params: the first model, ``[P]``.
        federation: what it knows of its clients.
        scheduler: the pace in motion, and whom it asks.
        rounds: server steps that are planned; None is without an end.
        records_influence: whether to sum up what each client contributes.
        sums_early: whether updates may be summed as they come in, where the algorithm allows it.
        blames: whether a step that overflows raises, so that the driver finds out by whose reports. It does not where these
            changed what clients remember and the server sums, nor where leaving one out would tell something of its data.
        attack: in a simulation, what colluding attackers make of the reports of a step, of which each knows all others.

    Attributes:
        state: the server's state; ``state.version`` counts the steps.
        federation: as given; N grows by `enrol`.
        scheduler, rounds: as given.
        models: the model of every version that somebody may still report about, ``[P]``.
        influence: what every client has contributed; None if nobody asked for it.
        measured: what those said who were asked before the cohort of the present round was chosen; None without.
        attendances: who takes part in the extra phases of the present round, by 0, or of groups, by their numbers.
        barred: clients that take part in no extra phases any more, because they broke the protocol.
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
        self.attendances: dict[int, Attendance] = {}
        self.barred: set[int] = set()
        if algorithm.aggregation.phases:
            self.scheduler.through = self._through
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
        """The reason why there is no further step; None if there may be one."""
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
        """Restore the correlation of noise that was searched when this run began."""
        slots = self.state.slots
        slots["aggregation"] = self.algorithm.aggregation.settled(slots["aggregation"], searched)

    def noise_of(self, secret: int | None, lost_releases: tuple[tuple[int, int], ...]) -> None:
        """Derive the noise of the next step from a secret, and account for releases that were lost."""
        self.federation = replace(self.federation, secret=secret, lost_releases=lost_releases)

    def count_answers(self, number: int) -> None:
        """Count so many noised answers to evaluations and queries in the privacy budget."""
        self.federation = replace(self.federation, noised_answers=number)

    def next(self, time: float) -> Told | None:
        """Return the next action, as `Scheduler.next`."""
        return self.scheduler.next(time)

    def batch(self, action: Step | Gather) -> Batch:
        """Return the tasks of a step or of a phase that is over, in the order in which their reports are to be given."""
        self._grow()
        if isinstance(action, Step) and self.attendances:
            action = _of_sum(action, [self.attendances[group] for group in action.groups])
        phase: Phase = "train" if isinstance(action, Step) else action.phase
        tasks, clients = np.array(action.tasks, dtype=np.int64), np.array(action.clients, dtype=np.int64)
        versions = np.array(
            action.versions if isinstance(action, Step) else [action.version] * len(clients), dtype=np.int64
        )
        order = np.argsort(clients, kind="stable")
        tasks, clients, versions = tasks[order], clients[order], versions[order]
        turn = np.arange(len(clients)) - np.searchsorted(clients, clients)
        once = not turn.any() and not self._repeats
        streams = phase == "prepare" or (phase == "train" and self._sums_early and once)
        again = None
        if self._mixes:
            again = self._trained.of_batch(clients, versions, turn)
        groups = tuple(action.groups) if isinstance(action, Step) else (action.group,)
        group_of = self._group_of(groups, clients) if phase == "train" else None
        return Batch(phase, self.state.version, tasks, clients, versions, turn, again, streams, groups, group_of)

    def _group_of(self, groups: Sequence[int], clients: np.ndarray) -> np.ndarray | None:
        """Return the group of each client, int64 ``[B]``; None where groups have no sums of their own."""
        if not self.attendances or tuple(groups) == (0,):
            return None
        owner = {client: group for group in groups for client in self.attendances[group].used()}
        return np.array([owner[client] for client in clients.tolist()], dtype=np.int64)

    def present_batch(self, clients: np.ndarray, phase: Phase) -> Batch:
        """Return a batch of different clients, ascending, who do a task that nobody gave them, from the present model."""
        versions = np.full(len(clients), self.state.version)
        zero = np.zeros_like(clients)
        return Batch(phase, self.state.version, zero - 1, clients, versions, zero, None, False)

    def task(self, batch: Batch, rows: np.ndarray | slice) -> Task:
        """Return the task of the clients in some rows of a batch, for a simulation that trains them together."""
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
        """Return the tensors that are broadcast beside the model; they are the same for all tasks until the next step."""
        if self._shared[0] is not self.state:
            self._shared = self.state, self.algorithm.shared(self.state)
        return self._shared[1]

    def orders(self, ask: Ask) -> list[Order]:
        """Return the orders of new tasks, one for each client; to be called before `next` is called again."""
        self._grow()
        inputs = self.algorithm.per_client_inputs(np.array(ask.clients, dtype=np.int64), self.state, self.federation)
        in_hand = self.scheduler.pace.in_hand() if self._mixes else []
        return [
            Order(
                task, client, ask.version, ask.phase,
                self._trained.so_far(client, ask.version, in_hand) if self._mixes else 0,
                {name: values[row : row + 1] for name, values in inputs.items()},
            )
            for row, (task, client) in enumerate(zip(ask.tasks, ask.clients, strict=True))
        ]  # fmt: skip

    def _through(self, wanted: Choose, version: int) -> list[int]:
        """Return the clients to ask for an extra phase, of all who completed the phase before."""
        clients, aggregation = wanted.first, self.algorithm.aggregation
        if wanted.phase == aggregation.phases[0]:
            self.attendances[wanted.group] = aggregation.attendance(self.federation.seed, wanted.group or version)
            may = self._took_part.may(np.array(clients, dtype=np.int64), version)  # nobody can be taken out of a sum
            clients = [
                client for client, allowed in zip(clients, may, strict=True) if allowed and client not in self.barred
            ]
        return self.attendances[wanted.group].ask(wanted.phase, clients)

    def no_reports(self) -> Report:
        """Return an empty report."""
        return Report.of_nobody(self.state.params)

    def take(self, batch: Batch, reports: Report) -> Stepped | None:
        """Take the reports of a batch, in its order: step if they are of training, and gather them otherwise."""
        if batch.phase == "train":
            return self.step(batch, reports)
        self.gathered(batch, reports)
        return None

    def gathered(self, batch: Batch, reports: Report) -> None:
        """Take in the reports of a phase that leaves the model as it is, before `next` is called again."""
        if batch.phase == "prepare":
            self.state = server_prepares(self.algorithm, self.state, reports, self.federation)
            self.models[self.state.version] = self.state.params
            self._prepared = reports
            return
        if batch.phase in self.algorithm.aggregation.phases:
            self.attendances[batch.groups[0]].gathered(batch.phase, batch.clients.tolist())
            return
        self.measure_by(self._counted(reports))

    def step(self, batch: Batch, reports: Report) -> Stepped:
        """Take the server step with the reports of a batch, in its order, before `next` is called again.

        Args:
            batch: whose reports they are.
            reports: what was sent.

        Raises:
            BudgetSpent: where the step would release more than the privacy budget allows.
        """
        if (why := self._exhausted()) is not None:
            raise BudgetSpent(why)
        reports, early = self._in_time(self._complete(self._counted(reports)))
        if self._attack is not None:
            reports = self._attack(self, reports)
        needed = self.scheduler.pace.versions()
        before = self.state
        self.state, info = server_step(self.algorithm, before, reports, self.federation, refuses_overflow=self._blames)
        info |= early
        if early:
            self._took_part.note(reports.client, before.version)
        self._note(batch, reports, info)
        models = {version: model for version, model in self.models.items() if version in needed}
        self.models = models | {self.state.version: self.state.params}
        prepared, self._prepared, self.measured = self._prepared, None, None
        sums = self.scheduler.pace.sums
        self.attendances = {group: attendance for group, attendance in self.attendances.items() if group in sums}
        return Stepped(reports, info, before.version, prepared)

    def check(self, batch: Batch, reports: Report) -> None:
        """Raise what the pieces raise of the reports of a batch, if they do; nothing changes."""
        undo = Rollback.of(self.algorithm, self.state, reports)
        try:
            if batch.phase == "train":
                reports, _ = self._in_time(self._complete(self._counted(reports)))
                server_step(self.algorithm, self.state, reports, self.federation, refuses_overflow=self._blames)
            elif batch.phase == "prepare":
                server_prepares(self.algorithm, self.state, reports, self.federation)
        finally:
            undo()

    def measure_by(self, measured: Report) -> None:
        """Choose the next cohort by these measurements, and take the next step with them."""
        self.measured = measured
        self.scheduler.cohorts.measured(measured)

    def _in_time(self, reports: Report) -> tuple[Report, Info]:
        """Return the reports of clients that may take part again, and how many others there were, if there is a limit."""
        if self._took_part.limit is None:
            return reports, {}
        version = self.state.version
        may = self._took_part.may(reports.client, version)
        in_time = reports if may.all() else reports.take(may.nonzero()[0])
        return in_time, {"num_too_early": int((~may).sum())}

    def _counted(self, reports: Report) -> Report:
        """Return the reports, with two rows for a client that the cohort contains twice."""
        return with_repeats(reports, self.scheduler.cohort) if self._repeats else reports

    def _complete(self, reports: Report) -> Report:
        """Return the reports with earlier measurements, and with the offsets of the models that they were trained from."""
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
        """Add a client to the federation and return its number; it is there once it has `joined`.

        What is kept of every client gets its rows when somebody next needs them, so that many may come at once. From then on
        N counts it: pieces that divide by N divide by all clients who have enrolled so far, or by the number that the
        federation was declared to have, whichever is larger.
        """
        self._enrolled += 1
        return self._enrolled - 1

    def _grow(self) -> None:
        """Extend the state to all clients that have enrolled."""
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
        """Return the whole state in groups of tensors; to be called when `next` has nothing to do, or after `step`."""
        groups = {f"server.{slot}": state for slot, state in self.state.slots.items()}
        groups |= {f"schedule.{name}": as_tensors(arrays) for name, arrays in self.scheduler.state().items()}
        facts = {"versions": np.array(list(self.models)[:-1], dtype=np.int64), "enrolled": np.array(self._enrolled)}
        facts |= self._trained.state() | self._took_part.state() | {"version": np.array(self.state.version)}
        facts |= {"clients": np.array(self.federation.num_clients)}  # who enrolled since then has no rows yet
        facts |= {} if self.influence is None else self.influence.state()
        for group, attendance in self.attendances.items():
            facts |= {f"sum.{group}.{name}": value for name, value in attendance.state().items()}
        earlier = {str(version): model for version, model in self.models.items() if version != self.state.version}
        all_groups = groups | {
            "model": {"params": self.state.params},
            "coordinator": as_tensors(facts),
            "models": earlier,
        }
        return all_groups if self.measured is None else all_groups | {"measured": report_as_tensors(self.measured)}

    def restore(self, group: Callable[[str], State]) -> None:
        """Restore the state that `state_groups` returned, one group by its name, in place of starting the scheduler."""
        arrays = as_arrays(group("coordinator"))
        self._enrolled = int(arrays.get("clients", arrays["enrolled"]))
        self._grow()
        device = self.federation.device
        slots = {}
        for slot, fresh in self.state.slots.items():
            saved = group(f"server.{slot}")
            slots[slot] = {name: saved[name].to(fresh[name].device) for name in fresh}
        self.state = ServerState(group("model")["params"].to(device), int(arrays["version"]), slots)
        models = group("models")
        earlier = {version: models[str(version)].to(device) for version in arrays["versions"].tolist()}
        self.models = earlier | {self.state.version: self.state.params}
        self._trained.restore(arrays)
        self._took_part.restore(arrays)
        self._enrolled = int(arrays["enrolled"])
        if self.influence is not None and "contributions" in arrays:  # checkpoints of earlier versions may lack it
            self.influence.restore(arrays)
        self.scheduler.restore({name: as_arrays(group(f"schedule.{name}")) for name in self.scheduler.state()})
        self.attendances = {}
        for number in sorted({int(name.split(".")[1]) for name in arrays if name.startswith("sum.")}):
            extra = {
                name.split(".", 2)[2]: value for name, value in arrays.items() if name.startswith(f"sum.{number}.")
            }
            attendance = self.algorithm.aggregation.attendance(self.federation.seed, number or self.state.version)
            attendance.restore(extra)
            self.attendances[number] = attendance
        self.measured = None
        if measured := group("measured"):
            self.measure_by(report_of_tensors(measured, device))


def _of_sum(step: Step, attendances: Sequence[Attendance]) -> Step:
    """Return a step with the tasks of the clients whose updates are in its sums; of nobody where none can be opened."""
    summed = {client for attendance in attendances for client in attendance.used()}
    rows = [i for i, client in enumerate(step.clients) if client in summed]
    return step._replace(
        **{name: tuple(getattr(step, name)[i] for i in rows) for name in ("tasks", "clients", "versions")}
    )
