"""The coordinator in motion: journal entries go in, and what follows of each comes out. No clock, no network.

The same entries in the same order lead to the same state, bit for bit, so a server that died goes on from its last checkpoint
and the entries behind it, and `replay` recomputes a run from nothing but its journal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.core.checks import CheckpointError
from turnout.core.types import Candidates, Report
from turnout.deployment.server.extra_phases import ExtraPhases
from turnout.deployment.server.ledger import Ledger
from turnout.deployment.server.noise import Noise
from turnout.deployment.server.presence import Presence
from turnout.deployment.server.setting import Setting
from turnout.deployment.server.store import Entry, Outcome, ReportLost, Store
from turnout.deployment.wire.format import Assignment, digest, encode, is_finite, model_tensors, told
from turnout.protocol.batch import Batch
from turnout.protocol.choice import Choice
from turnout.protocol.cohorts import SelectedCohorts
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.pace import Ask, Drop, Gather, SetTimer, Step
from turnout.protocol.scheduler import Scheduler
from turnout.protocol.streaming import ReportBuffer, StreamingSum
from turnout.record import checkpoint
from turnout.record.query import save_run

OVER = "the run is over"


log = logging.getLogger("turnout.server")


@dataclass
class Applied:
    """What follows of one entry.

    Attributes:
        asked: clients who were given a task.
        outcomes: what became of tasks.
        timers: (timer, time) that were set.
        left: why a client that went away lost its task.
        error: what ended the entry before it was done; what it was about is dropped.
    """

    asked: list[int] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    timers: list[tuple[int, float]] = field(default_factory=list)
    left: str = "left"
    error: Exception | None = None


class Unusable(Exception):
    """Reports on these tasks cannot be used; the step is to be taken without them."""

    def __init__(self, tasks: Sequence[int], reason: str) -> None:
        super().__init__(reason)
        self.tasks, self.reason = tasks, reason


class Driver:
    """A federation that is moved by entries of a journal.

    Args:
        setting: what is run.
        store: where models and reports are.
        ledger: where tables are kept; None keeps none.

    Attributes:
        version: server steps taken.
        over: why the run has ended; None while it has not.
        started: whether the first task may be given.
        applied: the number of the last entry that was applied.
        stepped: called after every server step.
        finite: whether the last model that was published holds neither NaN nor infinity, as clients get it.
        empty_steps: server steps in a row that had no report, or none that could be used; since this process started.
    """

    def __init__(self, setting: Setting, store: Store, ledger: Ledger | None = None) -> None:
        self.setting, self.store, self.ledger = setting, store, ledger
        self.presence = Presence()
        self.coordinator: Coordinator | None = None
        self.over: str | None = None
        self.applied = 0
        self.names: dict[int, str] = {}
        self.stepped: Callable[[Driver], None] = lambda _: None
        self.empty_steps, self.finite = 0, True
        self._lost = store.lost()
        self._tasks: dict[int, Assignment] = {}
        self._bodies: dict[int, str] = {}
        self._extra = ExtraPhases(setting, self._body)
        self._timers: dict[int, float] = {}
        self._published: tuple[Any, Any, str, int] | None = None
        self._choice: Choice | None = None
        self.noise = Noise()
        self._saved: tuple[int, list[str]] = 0, []  # entries and reports of the last checkpoint

    @property
    def started(self) -> bool:
        """Whether tasks have been given."""
        return self.coordinator is not None

    @property
    def version(self) -> int:
        """Server steps taken."""
        return 0 if self.coordinator is None else self.coordinator.state.version

    @property
    def params(self) -> torch.Tensor:
        """The present model, ``[P]``."""
        return self.setting.initial if self.coordinator is None else self.coordinator.state.params

    @property
    def barred(self) -> dict[int, str]:
        """Clients that take part in no extra phases any more, and why."""
        return self._extra.barred

    @property
    def digest(self) -> str | None:
        """The digest of the last model that was published."""
        return None if self._published is None else self._published[2]

    @property
    def num_open(self) -> int:
        """How many clients are at work."""
        return len(self._tasks)

    def task_of(self, client: int) -> Assignment | None:
        """Return the open task of a client."""
        return self._tasks.get(client)

    def present(self) -> list[int]:
        """Return who is there."""
        return self.presence.there().tolist()

    def timers(self) -> list[tuple[int, float]]:
        """Return the timers that were set and have not run out."""
        return list(self._timers.items())

    def apply(self, entry: Entry) -> Applied:
        """Do what follows of an entry, the next one of the journal.

        Whatever the content of an entry raises ends that entry and no more: the same journal raises it at each recovery, and
        a server that did not survive it could never start again.

        Raises:
            CheckpointError: for an entry out of order, or where the store cannot be read or written.
        """
        if entry.number != self.applied + 1:
            raise CheckpointError(f"the journal has a gap: entry {entry.number} follows {self.applied}")
        self.applied = entry.number
        applied = Applied()
        try:
            self._happen(entry, applied)
        except Exception as error:
            if _is_of_the_machine(error):
                raise
            log.exception("entry cannot be applied", extra={"entry": entry.number, "kind": entry.kind})
            applied.error = error
        if self.coordinator is not None and self.over is None:
            self._go_on(entry.time, applied)
        return applied

    def _happen(self, entry: Entry, applied: Applied) -> None:
        """Tell presence and pace what happened."""
        match entry.kind:
            case "enrol":
                self.names[self.presence.enrol()] = str(entry.data.get("name") or "")
                if self.coordinator is not None:
                    self.coordinator.enrol()
            case "start":
                self.noise = self.noise.renewed(entry)
                self._start(entry.time, entry.data.get("searched"))
            case "restart":
                self.noise = self.noise.renewed(entry)
                if self.coordinator is not None:
                    self.coordinator.noise_of(self.noise.of_step, self.noise.lost)
            case "join" | "leave":
                assert entry.client is not None
                applied.left = entry.data.get("reason", applied.left)
                self._come_or_go(entry.time, entry.client, entry.kind == "join")
            case "report" | "fail" | "timer" if self.coordinator is not None and self.over is None:
                self._of_task(entry, self.coordinator.scheduler, applied)

    def _of_task(self, entry: Entry, scheduler: Scheduler, applied: Applied) -> None:
        """Tell the pace of a run that goes on what became of a task, or that a timer ran out."""
        if entry.kind == "timer":
            timer = entry.data["timer"]
            self._timers.pop(timer, None)
            scheduler.expired(entry.time, timer)
            return
        assert entry.client is not None
        assert entry.task is not None
        if entry.kind == "fail":
            scheduler.died(entry.time, entry.client, entry.task)
        else:
            assert entry.digest is not None
            self._report(entry.time, entry.client, entry.task, entry.digest, scheduler, applied)

    def _start(self, time: float, searched: list[float] | None) -> None:
        """Bind everything to the clients who are enrolled by now, and ask for the first cohort."""
        self._bind(self.presence.num_clients)
        assert self.coordinator is not None
        if searched is not None:
            self.coordinator.settle(searched)
        self.coordinator.scheduler.start(time)
        if self.ledger is not None:
            self.ledger.begun = time

    def _bind(self, n: int) -> None:
        """Make the coordinator of N clients."""
        setting = self.setting
        federation = setting.federation(n)
        pace = setting.pace.bind(n, setting.algorithm)
        self._choice = Choice(self.presence, pace, setting.seed)
        cohorts = SelectedCohorts(setting.algorithm.selection, self._candidates, self.presence.there)
        scheduler = Scheduler(pace, cohorts, self._choice, patient=True)
        self.coordinator = Coordinator(
            setting.algorithm, setting.initial.clone(), federation, scheduler, rounds=setting.rounds
        )
        self.coordinator.noise_of(self.noise.of_step, self.noise.lost)

    def _candidates(self, version: int) -> Candidates:
        """Return whom a selection can choose from."""
        there = self.presence
        return Candidates(
            lambda clients: there.available(clients, version), there.num_clients, version, self.setting.seed
        )

    def _come_or_go(self, time: float, client: int, comes: bool) -> None:
        """Note that a client came, or went away."""
        self.presence.set(client, comes)
        if self.coordinator is None or self.over is not None:
            return
        assert self._choice is not None
        self._choice.begin(self._choice.round)  # who is there is listed anew
        if comes:
            self.coordinator.scheduler.joined(time, [client])
        else:
            self.coordinator.scheduler.left(time, [client])

    def _report(self, time: float, client: int, task: int, body: str, scheduler: Scheduler, applied: Applied) -> None:
        """Take a client's report."""
        held = self._tasks.get(client)
        if held is None or held.task != task:
            return  # the task has ended: its outcome is known
        scheduler.reported(time, client, task, held.version)
        del self._tasks[client]
        self._bodies[task] = body
        self._extra.take(client, body, held)
        applied.outcomes.append(Outcome(task, client, "taken", body))

    def _go_on(self, time: float, applied: Applied) -> None:
        """Do what the pace wants, until there is nothing left to do."""
        coordinator = self.coordinator
        assert coordinator is not None
        if coordinator.over is not None:  # the journal says that more was spent than the run knows
            self._end(applied)
        while self.over is None and (action := coordinator.next(time)) is not None:
            match action:
                case Ask():
                    self._ask(action, time, applied)
                case Step() | Gather():
                    self._use(action, time, applied)
                case Drop(tasks=tasks, clients=clients, reason=reason):
                    self._drop(tasks, clients, reason, applied)
                case SetTimer(timer=timer, time=due):
                    self._timers = {timer: due}  # an earlier one does nothing any more
                    applied.timers.append((timer, due))
            if coordinator.over is not None:
                self._end(applied)

    def _use(self, action: Step | Gather, time: float, applied: Applied) -> None:
        """Give the coordinator the reports of an action; those that cannot be used are dropped."""
        while True:
            try:
                self._use_all(action, time)
                return
            except Unusable as error:
                bad = [task in error.tasks for task in action.tasks]
                if not any(bad):
                    raise
                log.error("reports dropped", extra={"tasks": list(error.tasks), "reason": error.reason})
                clients = [client for client, drops in zip(action.clients, bad, strict=True) if drops]
                self._drop(list(compress(action.tasks, bad)), clients, "unusable", applied)
                action = _without(action, bad)

    def _use_all(self, action: Step | Gather, time: float) -> None:
        """Give the coordinator all reports of an action.

        Raises:
            Unusable: where some, or together all, cannot be used; nothing has changed then.
        """
        coordinator = self.coordinator
        assert coordinator is not None
        secret = isinstance(action, Step) and self._extra.declared
        reports = coordinator.no_reports()
        if secret and action.tasks:
            with _blaming(action.tasks):
                reports = self._extra.report(coordinator)  # before the batch, which is empty where there is no sum
        batch = coordinator.batch(action)
        if batch.phase in self.setting.algorithm.aggregation.phases:
            self._extra.gathered(coordinator, batch.phase, batch.clients.tolist())
            coordinator.gathered(batch, reports)
            self._forget(action.tasks)
            return
        with _blaming(action.tasks):
            reports = reports if secret else self._reports(batch)
            if isinstance(action, Gather):
                coordinator.gathered(batch, reports)
                self._forget(action.tasks)
                return
            noise = self.noise.after(reports, [self._bodies.get(task) for task in action.tasks])
            coordinator.noise_of(noise.of_step, noise.lost)
            stepped = coordinator.step(batch, reports)
        self.noise = noise
        self._forget(action.tasks)
        if secret:
            self._extra.clear()
        usable = len(stepped.reports) - stepped.info.get("num_dropped", 0)
        self.empty_steps = 0 if usable > 0 else self.empty_steps + 1
        if self.ledger is not None:
            self.ledger.step(coordinator, stepped, time)
        self.stepped(self)

    def _forget(self, tasks: Sequence[int]) -> None:
        """Forget reports that were used."""
        for task in tasks:
            self._bodies.pop(task, None)

    def _body(self, task: int, name: str) -> bytes:
        """Read the report on a task.

        Raises:
            ReportLost: where it is missing or damaged, or was when the journal was applied before.
            CheckpointError: where no report is left.
        """
        if task in self._lost:
            raise ReportLost(f"the report on task {task} was lost before")
        try:
            return self.store.read_report(name)
        except ReportLost as error:
            self.store.note_lost(task, str(error))
            self._lost.add(task)
            raise

    def _reports(self, batch: Batch) -> Report:
        """Read the reports of a batch; where only their sum is needed, never all of them are in memory.

        Raises:
            Unusable: for one that is missing, damaged, or raises when it is read or weighed.
        """
        coordinator, expected = self.coordinator, self.setting.reports[batch.phase]
        assert coordinator is not None
        streams = batch.is_streamable and len(batch) > 0
        found = (
            StreamingSum(coordinator.algorithm, coordinator.state, coordinator.federation)
            if streams
            else ReportBuffer()
        )
        repeats = np.zeros(len(batch)) if batch.repeat_index is None else batch.repeat_index
        for task, client, version, repeat in zip(batch.tasks, batch.clients, batch.versions, repeats, strict=True):
            with _blaming([int(task)]):
                body = self._body(int(task), self._bodies[int(task)])
                found.add(expected.read(body, int(client), int(version), int(repeat), checked=True))
        if len(batch):
            return found.reports()
        return coordinator.no_reports()

    def _drop(self, tasks: Any, clients: Any, reason: str, applied: Applied) -> None:
        """End tasks without using them."""
        reason = applied.left if reason == "left" else reason
        for task, client in zip(tasks, clients, strict=True):
            held = self._tasks.get(client)
            if held is not None and held.task == task:
                del self._tasks[client]
            self._bodies.pop(task, None)
            applied.outcomes = [outcome for outcome in applied.outcomes if outcome.task != task]
            applied.outcomes.append(Outcome(task, client, reason))
        if self.ledger is not None:
            self.ledger.drop(reason, len(tasks))

    def _end(self, applied: Applied) -> None:
        """End the run; whoever is still at work may stop."""
        assert self.coordinator is not None
        self.over = self.coordinator.over or OVER
        open_tasks = [(held.task, client) for client, held in self._tasks.items()]
        for task, client in open_tasks:
            self._drop([task], [client], OVER, applied)
        self._publish()

    def _ask(self, ask: Ask, time: float, applied: Applied) -> None:
        """Give clients their tasks."""
        assert self.coordinator is not None
        try:
            secrets = self._extra.told(self.coordinator, ask.phase, ask.clients)
        except Exception as error:
            if _is_of_the_machine(error):
                raise
            log.error("phase given up", extra={"phase": ask.phase, "reason": repr(error)})
            for client, task in zip(ask.clients, ask.tasks, strict=True):
                self.coordinator.scheduler.died(time, client, task)
            return
        orders, (model, size) = self.coordinator.orders(ask), self._publish()
        for order in orders:
            told_alone = told(secrets.get(order.client, order.told), 0)
            self._tasks[order.client] = Assignment(
                order.task,
                order.version,
                order.phase,
                order.repeat_index,
                model,
                size,
                self.setting.heartbeat,
                told_alone,
            )
        applied.asked += ask.clients

    def _publish(self) -> tuple[str, int]:
        """Make the present model a file, if it is none yet; return its digest and size."""
        assert self.coordinator is not None
        params, shared = self.coordinator.state.params, self.coordinator.shared()
        if self._published is None or self._published[0] is not params or self._published[1] is not shared:
            tensors = model_tensors(params, shared, self.setting.algorithm.broadcast_dtype(params.dtype))
            self.finite = all(is_finite(value) for value in tensors.values() if value.is_floating_point())
            body = encode(tensors)
            name = digest(body)
            self.store.write_model(name, body)
            self._published = params, shared, name, len(body)
            self.store.keep_models({name} | {held.model for held in self._tasks.values()})
        return self._published[2], self._published[3]

    def save(self, discard: bool = False) -> None:
        """Save tables and a checkpoint.

        Args:
            discard: delete the reports that neither this checkpoint nor the one before needs to go on.
        """
        if self.ledger is None:
            return
        model_groups, model = self.setting.trained.saved()
        facts: dict[str, Any] = {
            "model": model,
            "journal": self.applied,
            "run": self.store.run,
            "version": self.version,
            "started": 0 if self.coordinator is None else self.coordinator.federation.num_clients,
            "noise": vars(self.noise),
            "over": self.over,
            "num_clients": self.presence.num_clients,
            "names": {str(client): name for client, name in self.names.items() if name},
            "tasks": [[client, held.json()] for client, held in self._tasks.items()],
            "bodies": list(self._bodies.items()),
            "timers": list(self._timers.items()),
            "ledger": self.ledger.facts(),
            **self._extra.facts(),
        }
        groups = {} if self.coordinator is None else self.coordinator.state_groups()
        tensors = checkpoint.flatten(groups | model_groups) | {"presence": torch.from_numpy(self.presence.there())}
        if self.coordinator is None:
            tensors["model/params"] = self.setting.initial
        if self.over is not None:
            self.ledger.set_clients(self.presence.num_clients, self.names)
        save_run(self.ledger.folder, self.ledger.history, tensors, facts, finished=self.over is not None)
        if discard:
            self.store.keep_reports(*self._saved)
        self._saved = self.applied, self._held()

    def _held(self) -> list[str]:
        """Return the reports that are still to be used."""
        return [*self._bodies.values(), *self._extra.bodies()]

    def restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any], folder: Path) -> None:
        """Take over a checkpoint.

        Raises:
            CheckpointError: for one of another run.
        """
        if facts.get("run") != self.store.run:
            raise CheckpointError(
                f"{folder} holds the checkpoint of another run than its journal: restore both from a copy"
            )
        self.applied = facts["journal"]
        for _ in range(facts["num_clients"]):
            self.presence.enrol()
        for client in tensors["presence"].tolist():
            self.presence.set(client, True)
        self.names = {int(client): name for client, name in facts["names"].items()}
        self._tasks = {client: Assignment.read(table) for client, table in facts["tasks"]}
        self._bodies, self._timers = dict(facts["bodies"]), dict(facts["timers"])
        self.noise = Noise(**{**facts["noise"], "lost": tuple(map(tuple, facts["noise"]["lost"]))})
        self._extra.restore(facts)
        self._saved = self.applied, self._held()
        if facts["started"]:
            self._bind(facts["started"])
            assert self.coordinator is not None
            self.coordinator.barred |= self.barred.keys()
            self.coordinator.restore(lambda group: checkpoint.unflatten(tensors, group))
            self._publish()
        self.over = facts["over"] if self.coordinator is not None and self.coordinator.over is not None else None
        if self.ledger is not None:
            self.ledger.restore(self.version, facts["ledger"])


@contextmanager
def _blaming(tasks: Sequence[int]) -> Iterator[None]:
    """Say of an error which tasks it is about, unless that is said already."""
    try:
        yield
    except Unusable:
        raise
    except Exception as error:
        if _is_of_the_machine(error) or not tasks:
            raise  # without any report it is no report's doing
        raise Unusable(tasks, repr(error)) from error


def _is_of_the_machine(error: Exception) -> bool:
    """Return whether an error says nothing of an entry's content, so that it need not be raised at the next attempt.

    A server ends by such an error and goes on from its journal.
    """
    return isinstance(error, CheckpointError | OSError | MemoryError) and not isinstance(error, ReportLost)


def _without(action: Step | Gather, bad: Sequence[bool]) -> Step | Gather:
    """Return an action without some of its tasks."""
    good = [not drops for drops in bad]
    kept = {name: tuple(compress(getattr(action, name), good)) for name in ("tasks", "clients")}
    if isinstance(action, Step):
        kept["versions"] = tuple(compress(action.versions, good))
    return action._replace(**kept)
