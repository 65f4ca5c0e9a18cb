"""A run on a server, from its first task on: the coordinator, its open tasks and the reports of clients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from turnout.core.candidates import Candidates
from turnout.core.types import Report, State
from turnout.protocol.batch import Batch, Stepped
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import SelectedCohorts
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.federated_server import FederatedServer
from turnout.protocol.loop import carry_out, use
from turnout.protocol.pace import Gather, Step
from turnout.protocol.scheduler import Scheduler
from turnout_serve.server.journal.entries import Entry, Outcome
from turnout_serve.server.run.blame import Blame
from turnout_serve.server.run.budget import PrivacyBudget
from turnout_serve.server.run.extra_phases import ExtraPhases
from turnout_serve.server.run.ledger import Ledger
from turnout_serve.server.run.publication import Published
from turnout_serve.server.run.reports import Reports
from turnout_serve.server.run.roster import Roster
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.run.task_book import TaskBook
from turnout_serve.server.run.training_tasks import TrainingTasks
from turnout_serve.wire.assignment import Assignment

OVER = "the run is over"

log = logging.getLogger("turnout.server")


class ServedRun:
    """Carry out the actions of a pace with the reports of clients: the `Clients` of `turnout.protocol.loop`.

    Args:
        setting: setting of the run.
        reports: those that are still to be used.
        ledger: tables; None keeps none.
        roster: tells which clients are present.
        book: the open tasks of clients.
        num_clients: N at the first task.
        budget: the noise of its steps.
        publish: function that writes the present model to a file.
        after_step: is called after a server step, with True after the last one.

    Attributes:
        server: holds the model and takes server steps.
        coordinator: schedules tasks, and passes reports to the server.
        tasks: begins and ends training tasks, and has the timers.
        reports: as given.
        extra: the phases after training.
        over: reason that the run is over; None while it goes on.
        empty_steps: server steps in a row without a usable report, in this process; a step whose sum a client
            prevented, which is excluded from then on, does not count, nor does one that clients took part in before the
            server was restored from a copy.
        used: tasks of the reports of the last step.
        min_clients: number of clients that must be present when clients are asked to train.
    """

    def __init__(
        self,
        setting: RunSetting,
        reports: Reports,
        ledger: Ledger | None,
        roster: Roster,
        book: TaskBook,
        num_clients: int,
        budget: PrivacyBudget,
        publish: Callable[[], Published],
        after_step: Callable[[Stepped, bool], None],
    ) -> None:
        self.setting, self._ledger, self._publish, self._after_step = setting, ledger, publish, after_step
        self._book, self._budget, self.reports = book, budget, reports
        self.over: str | None = None
        self.empty_steps = self._num_barred = 0
        self.min_clients, self.used = 1, tuple[int, ...]()
        self._is_repeated = False  # True if a client has sent a masked update for the present step before
        algorithm, seed = setting.algorithm, setting.seed
        pace = setting.pace.bind(num_clients, algorithm)
        self._choice = Choice(roster, pace, seed)
        cohorts = SelectedCohorts(
            algorithm.selection,
            lambda version: Candidates(lambda c: roster.available(c, version), roster.num_clients, version, seed),
            roster.present,
        )
        self.scheduler = Scheduler(pace, cohorts, self._choice, patient=True)
        self.scheduler.may_begin = lambda: len(roster.present()) >= self.min_clients
        federation, rounds = setting.federation(num_clients), setting.rounds
        self.server = FederatedServer(
            algorithm, setting.initial, federation, cohorts, rounds=rounds, records_influence=True, blames=True
        )
        self.coordinator = Coordinator(self.server, self.scheduler)
        self.extra = ExtraPhases(setting, self.coordinator, self.reports.body)
        parts = self.coordinator, self.reports, self.extra, ledger
        self.tasks = TrainingTasks(book, *parts, publish, setting.heartbeat)
        self._blame = Blame(self.coordinator, setting.reports, self.reports_of)
        budget.begin(self.server)

    @property
    def rounds(self) -> int:
        """Server steps that are planned."""
        return self.setting.rounds if self.server.rounds is None else self.server.rounds

    @property
    def is_held(self) -> bool:
        """True while too few clients are present for anybody to be asked to train."""
        return self.over is None and not any(self._book.training()) and not self.scheduler.may_begin()

    def set_min_clients(self, min_clients: int) -> None:
        """Set the number of clients that must be present when clients are asked to train."""
        self.min_clients = min_clients
        if self.over is None:
            self.scheduler.joined(self._book.effects.time)  # a smaller number may be there already

    def plan(self, rounds: int) -> None:
        """Set the planned number of server steps; a run that is over because it has taken all of them may go on."""
        self.server.rounds = rounds
        if self.over is not None and self.server.over is None:
            self.over = None
            self._choice.begin(self._choice.round)
            self.scheduler.resume(self._book.effects.time)

    def set_presence(self, client: int, present: bool) -> None:
        """Pass on that a client joined or left."""
        if self.over is not None:
            return
        self._choice.begin(self._choice.round)  # which lists the clients that are present once a round
        (self.scheduler.joined if present else self.scheduler.left)(self._book.effects.time, [client])

    def handle(self, entry: Entry) -> None:
        """Handle the entry of a report, of a client that failed, or of a timer; nothing once the run is over."""
        if self.over is not None:
            return
        if entry.kind == "timer":
            self.tasks.timers.pop(entry.data["timer"], None)
            self.scheduler.expired(entry.time, entry.data["timer"])
            return
        client, task = entry.sender, entry.done
        if entry.kind == "fail":
            self._is_repeated |= entry.data.get("reason") == "answered"
            self.scheduler.died(entry.time, client, task)
        elif (assignment := self._book.get(client, task)) is not None:
            self.scheduler.reported(entry.time, client, task, assignment.version)
            self._book.end(Outcome(task, client, "taken", entry.body))
            self.reports.bodies[task] = entry.body
            if self.extra.declared:
                self.extra.take(client, entry.body, assignment)

    def advance(self) -> None:
        """Carry out the actions of the pace until it waits for the next entry, or the run is over."""
        if self.over is not None:
            return
        while self.server.over is None and (action := self._next()) is not None:
            use(self.coordinator, self, action, self.tasks)
        if self.server.over is not None:  # a step was the last one, or lost releases have spent the budget
            self.tasks.end_all(OVER)
            self._publish()
            self.over = self.server.over  # last, for clients are told so from now on, with the model that was published

    def _next(self) -> Step | Gather | None:
        """Return the next action that needs a model, without the measurements that make the selection raise."""
        while True:
            try:
                return carry_out(self.coordinator, self.tasks, self._book.effects.time)
            except Exception as error:
                if not (rows := self._blame.of_choice(error)):
                    raise
                self.tasks.drop_measurements(rows, error)

    def reports_of(self, coordinator: Coordinator, batch: Batch) -> Report:
        """Return the reports of a batch; the noise of a step follows from them."""
        extra, server = self.extra, coordinator.server
        if batch.phase in self.setting.algorithm.extra_phases:
            extra.gathered(batch.phase, batch.clients.tolist(), batch.groups[0])
            return Report.empty(server.state.params)
        # Of a sum that could not be used, the batch has no clients left.
        summed = extra.declared and batch.phase == "train" and len(batch) > 0
        reports = extra.report(batch) if summed else self.reports.read(batch, server)
        if batch.phase == "train":
            digests = [*(self.reports.bodies.get(task) for task in batch.tasks.tolist()), *extra.bodies()]
            self._budget.try_step(reports, digests)
        return reports

    def stepped(self, action: Step | Gather, stepped: Stepped | None) -> None:
        """Record a server step, and forget the reports that were used."""
        self.reports.forget(action.tasks)
        if isinstance(action, Gather) and action.phase == "measure":
            self.tasks.measured = dict(zip(action.clients, action.tasks, strict=True))
        if stepped is None:
            return
        self._budget.stepped()
        self.used = action.tasks
        _warn_of_absent(self, action)
        self.extra.keep(self.scheduler.pace.busy())
        # How many were dropped tells of clients' data: with differential privacy, no run may end by it.
        dropped = 0 if self.setting.algorithm.noised_privacy is not None else stepped.info.get("num_dropped", 0)
        usable = len(stepped.reports) - dropped
        num_barred = len(self.extra.barred)
        progresses = usable > 0 or num_barred > self._num_barred or self._is_repeated
        self._num_barred, self._is_repeated = num_barred, False
        self.empty_steps = 0 if progresses else self.empty_steps + 1
        if self._ledger is not None:
            self._ledger.step(self.server, stepped, self._book.effects.time)
        self._after_step(stepped, self.server.over is not None)

    def unusable(self, error: Exception, action: Step | Gather) -> Collection[int] | None:
        """Return the tasks of an action whose reports raise an error; None where no report is to blame."""
        if (blamed := self._blame.of_action(error, action)) is None:
            return None
        tasks, rows = blamed
        if tasks:
            clients = sorted(client for client, task in zip(action.clients, action.tasks, strict=True) if task in tasks)
            text = (
                "a secure sum dropped, for what one of its clients sent" if self.extra.declared else "reports dropped"
            )
            log.error(text, extra={"clients": clients, "tasks": list(tasks), "reason": str(error) or repr(error)})
        if not self.extra.declared:  # of a sum under masks, the messages of its earlier phases were used
            self.reports.exclude(tasks, repr(error))
        self.tasks.drop_measurements(rows, error)
        return tasks

    def unused(self) -> list[str]:
        """Return the digests of the reports that are still to be used."""
        return [*self.reports.bodies.values(), *self.extra.bodies()]

    def facts(self) -> dict[str, Any]:
        """Return the state beside that of the coordinator, as plain values."""
        return {
            "tasks": [[client, task.json()] for client, task in self._book.training()],
            "bodies": list(self.reports.bodies.items()),
            "timers": list(self.tasks.timers.items()),
            "measuring": list(self.tasks.measured.items()),
            "rounds": self.server.rounds,
            "min_clients": self.min_clients,
            **self.extra.facts(),
        }

    def restore(self, facts: Mapping[str, Any], group: Callable[[str], State]) -> None:
        """Restore what `facts` returned, and the coordinator from the tensors of each group."""
        for client, table in facts["tasks"]:
            self._book.add(client, Assignment.read(table))
        self.reports.bodies, self.tasks.timers = dict(facts["bodies"]), dict(facts["timers"])
        self.tasks.measured = dict(facts.get("measuring", ()))
        self.extra.restore(facts)
        self.coordinator.attendances.barred |= self.extra.barred.keys()
        self.coordinator.restore(group)
        self.min_clients = facts.get("min_clients", 1)  # earlier versions had none after the first start
        self.server.rounds, self.over = facts["rounds"], facts["over"]


def _warn_of_absent(run: ServedRun, action: Step | Gather) -> None:
    """Warn of a step that has fewer clients than there must be: some have dropped out, or one has filled a buffer."""
    clients = len({*action.clients})
    asked = len({*run.scheduler.cohort.tolist()}) or len(action.clients)  # a buffer has no cohort
    needed = int(asked / getattr(run.setting.pace, "over_selection", 1.0) + 1e-9)
    if clients < min(run.min_clients, needed):
        facts = {"step": run.server.state.version, "clients": clients, "asked": asked, "needed": run.min_clients}
        log.warning("a step has fewer clients than --min-clients", extra=facts)
