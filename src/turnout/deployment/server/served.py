"""A run that has begun on a server: its coordinator, the tasks that are out, and what becomes of reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from turnout.core.types import Candidates, Report, State
from turnout.deployment.server.blame import Blame, is_of_the_machine
from turnout.deployment.server.extra_phases import ExtraPhases
from turnout.deployment.server.ledger import Ledger
from turnout.deployment.server.noise import Noise
from turnout.deployment.server.publication import Published
from turnout.deployment.server.reports import Reports
from turnout.deployment.server.roster import Roster
from turnout.deployment.server.setting import RunSetting
from turnout.deployment.server.store import Outcome, Store
from turnout.deployment.wire.format import Assignment, told
from turnout.protocol.batch import Batch, Stepped
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import SelectedCohorts
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.loop import carry_out, use
from turnout.protocol.pace import Ask, Drop, Gather, SetTimer, Step
from turnout.protocol.scheduler import Scheduler

OVER = "the run is over"

log = logging.getLogger("turnout.server")


@dataclass
class Applied:
    """Consequences of one entry of the journal.

    Attributes:
        asked: clients who were given a task.
        surveyed: clients who were given the task of a survey.
        outcomes: what became of tasks.
        timers: (timer, time) that were set.
        left: why a client that went away lost its task.
        error: what ended the entry before it was done; what it was about is dropped.
    """

    asked: list[int] = field(default_factory=list)
    surveyed: list[int] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    timers: list[tuple[int, float]] = field(default_factory=list)
    left: str = "left"
    error: Exception | None = None


class ServedRun:
    """A run between machines, from its first task on: the driver of `turnout.protocol.loop`.

    Args:
        setting: what is run.
        store: where models and reports are.
        ledger: where tables are kept; None keeps none.
        roster: who is there.
        num_clients: N, when it begins.
        noise: what the noise of its steps follows from.
        publish: makes the present model a file.
        after_step: called after every server step.

    Attributes:
        coordinator: the server.
        tasks: the open task of each client at work.
        timers: when each timer runs out, in seconds of the server.
        reports: those that are still to be used.
        extra: the phases after training.
        noise: what the noise of the next step follows from.
        over: why the run has ended; None while it has not.
        empty_steps: server steps in a row that had no report, or none that could be used; since this process started.
    """

    def __init__(
        self,
        setting: RunSetting,
        store: Store,
        ledger: Ledger | None,
        roster: Roster,
        num_clients: int,
        noise: Noise,
        publish: Callable[[], Published],
        after_step: Callable[[Stepped], None],
    ) -> None:
        self.setting, self.noise = setting, noise
        self._ledger, self._after_step = ledger, after_step
        self.reports, self._publish = Reports(setting, store), publish
        self.extra = ExtraPhases(setting, self.reports.body)
        self.tasks: dict[int, Assignment] = {}
        self.timers: dict[int, float] = {}
        self._measuring: dict[int, int] = {}  # the task of each client that has measured for the present round
        self.over: str | None = None
        self.empty_steps = 0
        algorithm, seed = setting.algorithm, setting.seed
        pace = setting.pace.bind(num_clients, algorithm)
        self._choice = Choice(roster, pace, seed)

        def candidates(version: int) -> Candidates:
            return Candidates(lambda clients: roster.available(clients, version), roster.num_clients, version, seed)

        cohorts = SelectedCohorts(algorithm.selection, candidates, roster.there)
        self.scheduler = Scheduler(pace, cohorts, self._choice, patient=True)
        federation = setting.federation(num_clients)
        self.coordinator = Coordinator(
            algorithm,
            setting.initial,
            federation,
            self.scheduler,
            rounds=setting.rounds,
            records_influence=True,
            blames=True,
        )
        self._blame = Blame(self.coordinator, setting.reports, self.reports_of)
        self._time, self._applied, self._next_noise = 0.0, Applied(), noise
        self.renew(noise)

    def renew(self, noise: Noise) -> None:
        """Have the noise of all later steps follow from this."""
        self.noise = noise
        self.coordinator.noise_of(noise.of_step, noise.lost)

    def plan(self, time: float, rounds: int) -> None:
        """Take so many server steps in total; a run that was over because it had taken all of them goes on."""
        self.coordinator.rounds = rounds
        if self.over is not None and self.coordinator.over is None:
            self.over = None
            self._choice.begin(self._choice.round)
            self.scheduler.resume(time)

    def come_or_go(self, time: float, client: int, comes: bool) -> None:
        """Note that a client came, or went away."""
        if self.over is not None:
            return
        self._choice.begin(self._choice.round)  # who is there is listed anew
        (self.scheduler.joined if comes else self.scheduler.left)(time, [client])

    def expired(self, time: float, timer: int) -> None:
        """Note that a timer has run out."""
        self.timers.pop(timer, None)
        self.scheduler.expired(time, timer)

    def reported(self, time: float, client: int, task: int, body: str, applied: Applied) -> None:
        """Take a client's report, unless its task has ended: its outcome is known then."""
        assignment = self.tasks.get(client)
        if assignment is None or assignment.task != task:
            return
        self.scheduler.reported(time, client, task, assignment.version)
        del self.tasks[client]
        self.reports.bodies[task] = body
        self.extra.take(client, body, assignment)
        applied.outcomes.append(Outcome(task, client, "taken", body))

    def go_on(self, time: float, applied: Applied) -> None:
        """Do what the pace wants, until there is nothing left to do or the run is over."""
        self._time, self._applied = time, applied
        while self.coordinator.over is None and (action := self._next(time)) is not None:
            use(self.coordinator, self, action, self)
        if self.coordinator.over is not None:  # by a step, or by a journal that says that more was spent than was known
            self._end()

    def _next(self, time: float) -> Step | Gather | None:
        """Return the next action that needs a model, leaving out measurements for which the choice raises."""
        while True:
            try:
                return carry_out(self.coordinator, self, time)
            except Exception as error:
                if not (rows := self._blame.of_choice(error)):
                    raise
                self._leave_out(rows, error)

    def _leave_out(self, rows: Sequence[int], error: Exception) -> None:
        """Forget the measurements in some rows."""
        measured = self.coordinator.measured
        assert measured is not None
        clients = np.unique(measured.client[list(rows)]).tolist()
        tasks = [self._measuring[client] for client in clients]
        log.error("measurements dropped", extra={"clients": clients, "reason": repr(error)})
        self.coordinator.measure_by(measured.take(np.delete(np.arange(len(measured)), rows)))
        self.reports.leave_out(tasks, repr(error))
        self._drop(tasks, clients, "unusable")

    def _end(self) -> None:
        """End the run; clients that are still at work may stop."""
        self.over = self.coordinator.over or OVER
        for client, assignment in list(self.tasks.items()):
            self._drop([assignment.task], [client], OVER)
        self._publish()

    def ask(self, ask: Ask) -> None:
        """Give clients their tasks."""
        try:
            extra = self.extra.inputs(self.coordinator, ask.phase, ask.clients)
        except Exception as error:
            if is_of_the_machine(error):
                raise
            log.error("phase given up", extra={"phase": ask.phase, "reason": repr(error)})
            for client, task in zip(ask.clients, ask.tasks, strict=True):
                self.scheduler.died(self._time, client, task)
            return
        self._assign(ask, extra)
        self._applied.asked += ask.clients

    def _assign(self, ask: Ask, extra: Mapping[int, State]) -> None:
        """Make the tasks of clients, with what each alone is told in an extra phase."""
        orders, model = self.coordinator.orders(ask), self._publish()
        for order in orders:
            self.tasks[order.client] = Assignment(
                order.task,
                order.version,
                order.phase,
                order.repeat_index,
                model.digest,
                model.size,
                self.setting.heartbeat,
                told(extra.get(order.client, order.inputs), 0),
            )

    def timer(self, timer: SetTimer) -> None:
        """Set a timer; those that no longer matter are forgotten."""
        needed = self.scheduler.pace.timers
        self.timers = {number: due for number, due in self.timers.items() if number in needed} | {
            timer.timer: timer.time
        }
        self._applied.timers.append((timer.timer, timer.time))

    def dropped(self, drop: Drop) -> None:
        """End tasks without using them."""
        self._drop(drop.tasks, drop.clients, self._applied.left if drop.reason == "left" else drop.reason)

    def _drop(self, tasks: Sequence[int], clients: Sequence[int], reason: str) -> None:
        """End tasks for a reason."""
        applied = self._applied
        for task, client in zip(tasks, clients, strict=True):
            assignment = self.tasks.get(client)
            if assignment is not None and assignment.task == task:
                del self.tasks[client]
            # A report that this very entry took may be dropped by the step that follows from it: the last outcome counts.
            applied.outcomes = [outcome for outcome in applied.outcomes if outcome.task != task]
            applied.outcomes.append(Outcome(task, client, reason))
        self.reports.forget(tasks)
        if self._ledger is not None:
            self._ledger.drop(reason, clients)

    def reports_of(self, coordinator: Coordinator, batch: Batch) -> Report:
        """Read the reports of a batch, and make the noise of a step follow from them."""
        extra = self.extra
        if batch.phase in self.setting.algorithm.aggregation.phases:
            extra.gathered(coordinator, batch.phase, batch.clients.tolist(), batch.groups[0])
            return coordinator.no_reports()
        # Nobody is left of a sum that could not be used.
        summed = extra.declared and batch.phase == "train" and len(batch) > 0
        reports = extra.report(coordinator, batch) if summed else self.reports.read(batch, coordinator)
        if batch.phase == "train":
            digests = [*(self.reports.bodies.get(task) for task in batch.tasks.tolist()), *extra.bodies()]
            self._next_noise = self.noise.after(reports, digests)
            coordinator.noise_of(self._next_noise.of_step, self._next_noise.lost)
        return reports

    def stepped(self, action: Step | Gather, stepped: Stepped | None) -> None:
        """Record a server step, and forget the reports that were used."""
        self.reports.forget(action.tasks)
        if stepped is None:
            if isinstance(action, Gather) and action.phase == "measure":
                self._measuring = dict(zip(action.clients, action.tasks, strict=True))
            return
        self.noise = self._next_noise
        self.extra.clear(but=set(self.scheduler.pace.busy()))
        usable = len(stepped.reports) - stepped.info.get("num_dropped", 0)
        self.empty_steps = 0 if usable > 0 else self.empty_steps + 1
        if self._ledger is not None:
            self._ledger.step(self.coordinator, stepped, self._time)
        self._after_step(stepped)

    def unusable(self, error: Exception, action: Step | Gather) -> Collection[int] | None:
        """Return on which tasks of an action the reports are to blame for an error; None where no report is."""
        if (found := self._blame.of_action(error, action)) is None:
            return None
        tasks, rows = found
        if tasks:
            clients = sorted(client for client, task in zip(action.clients, action.tasks, strict=True) if task in tasks)
            what = (
                "a secure sum dropped, for what one of its clients sent" if self.extra.declared else "reports dropped"
            )
            log.error(what, extra={"clients": clients, "tasks": list(tasks), "reason": str(error) or repr(error)})
        if not self.extra.declared:  # of a sum under masks, the messages of its earlier phases were used
            self.reports.leave_out(tasks, repr(error))
        if rows:
            self._leave_out(rows, error)
        return tasks

    def unused(self) -> list[str]:
        """Return the names of the reports that are still to be used."""
        return [*self.reports.bodies.values(), *self.extra.bodies()]

    def facts(self) -> dict[str, Any]:
        """Return what it carries beside the coordinator, as plain values."""
        return {
            "tasks": [[client, assignment.json()] for client, assignment in self.tasks.items()],
            "bodies": list(self.reports.bodies.items()),
            "timers": list(self.timers.items()),
            "measuring": list(self._measuring.items()),
            "rounds": self.coordinator.rounds,
            **self.extra.facts(),
        }

    def restore(self, facts: Mapping[str, Any], group: Callable[[str], State]) -> None:
        """Restore what `facts` returned, and the coordinator."""
        self.tasks = {client: Assignment.read(table) for client, table in facts["tasks"]}
        self.reports.bodies, self.timers = dict(facts["bodies"]), dict(facts["timers"])
        self._measuring = dict(facts.get("measuring", ()))
        self.extra.restore(facts)
        self.coordinator.attendances.barred |= self.extra.barred.keys()
        self.coordinator.restore(group)
        self.coordinator.rounds, self.over = facts["rounds"], facts["over"]
