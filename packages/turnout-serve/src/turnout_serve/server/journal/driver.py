"""Apply the entries of a journal to a run. Replaying the same entries gives the same state, bit for bit.

Nothing here reads a clock or a socket. A server that died continues from its last checkpoint and the entries after it, and
`replay` recomputes a run from its journal alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import torch

from turnout.core.checks import CheckpointError
from turnout.core.types import State
from turnout.protocol.batch import Stepped
from turnout.protocol.survey import FIRST_TASK, ClosedSurvey
from turnout_serve.server.journal.entries import Effects, Entry
from turnout_serve.server.run.blame import PieceFailed, is_of_the_machine
from turnout_serve.server.run.budget import PrivacyBudget
from turnout_serve.server.run.ledger import Ledger
from turnout_serve.server.run.publication import Publication, Published
from turnout_serve.server.run.reports import Reports
from turnout_serve.server.run.roster import REASONS, Roster
from turnout_serve.server.run.served_run import ServedRun
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.run.surveys import Surveys
from turnout_serve.server.run.task_book import TaskBook
from turnout_serve.server.store.store import Store
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.assignment import Assignment

log = logging.getLogger("turnout.server")


class Driver:
    """Apply the entries of a journal to a run.

    Args:
        setting: setting of the run.
        store: models and reports.
        ledger: tables; None keeps none.

    Attributes:
        roster: the clients: which are enrolled, present, banned or removed.
        run: the run; None before its first task.
        applied: number of the last entry that was applied.
        budget: noise, and the privacy budget.
        surveys: evaluations and queries.
        publication: the models that clients download.
        tasks: the open tasks of clients.
        on_step: called after every server step.
        on_survey: called with the result of each evaluation or query.
    """

    def __init__(self, setting: RunSetting, store: Store, ledger: Ledger | None = None) -> None:
        self.setting, self.store, self.ledger = setting, store, ledger
        self.roster = Roster()
        self.run: ServedRun | None = None
        self.applied = 0
        self.budget = PrivacyBudget(setting)
        self.publication = Publication(store, setting.algorithm)
        self.tasks = TaskBook()
        self._reports = Reports(setting, store)
        parts = setting, self._reports.body, self.roster, self.tasks, self.budget
        self.surveys = Surveys(*parts, self.publish, self._record)
        self.on_step: Callable[[Driver], None] = lambda _: None
        self.on_survey: Callable[[ClosedSurvey], None] = lambda _: None
        self._first_shared: State = {name: torch.zeros_like(setting.initial) for name in setting.algorithm.keeps}

    @property
    def over(self) -> str | None:
        """Reason that the run is over; None while it goes on, or an evaluation or query is open."""
        return None if self.surveys.open or self.run is None else self.run.over

    @property
    def rounds(self) -> int:
        """Server steps that are planned."""
        return self.setting.rounds if self.run is None else self.run.rounds

    @property
    def version(self) -> int:
        """Server steps taken."""
        return 0 if self.run is None else self.run.server.state.version

    @property
    def params(self) -> torch.Tensor:
        """The present model, ``[P]``."""
        return self.setting.initial if self.run is None else self.run.server.state.params

    @property
    def barred(self) -> dict[int, str]:
        """Clients that are excluded from extra phases, and why."""
        return self.surveys.barred | ({} if self.run is None else self.run.extra.barred)

    def task_of(self, client: int) -> Assignment | None:
        """Return the task that a client gets when it asks for work: the first of the book."""
        return next(iter(self.tasks.of_client(client)), None)

    def present(self) -> list[int]:
        """Return the numbers of the clients that are present."""
        return self.roster.present().tolist()

    def apply(self, entry: Entry) -> Effects:
        """Apply the next entry of the journal, and return its effects.

        An exception raised by the content of an entry ends that entry alone, because every recovery raises it again. What a
        client sent that makes a piece raise is left out (`turnout.protocol.loop.use`). A piece that raises whatever clients
        send ends the server before anything of the entry is saved; the next start, with the piece fixed, applies it again.

        Raises:
            CheckpointError: if an entry is out of order, or if the store cannot be read or written.
            PieceFailed: if a piece raises whatever clients send.
        """
        if entry.number != self.applied + 1:
            raise CheckpointError(f"the journal has a gap: entry {entry.number} follows {self.applied}")
        self.applied = entry.number
        self.tasks.effects = effects = Effects(entry.time)
        for stage in (lambda: self._dispatch(entry), self._advance):
            try:
                stage()
            except Exception as error:
                if is_of_the_machine(error):
                    raise
                if entry.kind == "start" or stage == self._advance:  # later entries cannot be applied without
                    raise PieceFailed.of(error, self.version, entry.number) from error
                log.exception("entry cannot be applied", extra={"entry": entry.number, "kind": entry.kind})
                effects.error = error
        return effects

    def _advance(self) -> None:
        """Advance the run and the surveys until they wait for the next entry."""
        if self.run is not None:
            self.run.advance()
            if (last := self.publication.last) is None or last.version != self.version:
                self.publish()  # also where no client is present that could train it
        if self.surveys.open:
            self.surveys.advance()

    def _dispatch(self, entry: Entry) -> None:
        """Dispatch an entry by its kind."""
        if self.roster.apply(entry):
            self._presence_changed(entry)
        match entry.kind:
            case "enrol" if self.run is not None:
                self.run.coordinator.enroll()
            case "start":
                self._start(entry)
            case "restart":
                self._restart(entry)
            case "survey":
                self.surveys.begin(self.version, **entry.data)
            case "timer" if entry.data["timer"] < 0:
                self.surveys.handle(entry)
            case "report" | "fail" if (entry.task or 0) >= FIRST_TASK:
                self.surveys.handle(entry)
            case "report" | "fail" | "timer" if self.run is not None:
                self.run.handle(entry)

    def _presence_changed(self, entry: Entry) -> None:
        """Pass on that a client joined or left."""
        client, present = entry.sender, self.roster.is_present(entry.sender)
        self.tasks.effects.leave_reason = REASONS.get(entry.kind, str(entry.data.get("reason", "left")))
        if self.run is not None:
            self.run.set_presence(client, present)
        self.surveys.set_presence(client, present)

    def _start(self, entry: Entry) -> None:
        """Begin the run with the clients that are enrolled."""
        self.budget.renew(entry)
        run = self.begin(self.roster.num_clients)
        if (searched := entry.data.get("searched")) is not None:
            run.server.settle(searched)
        run.server.rounds = entry.data["rounds"]
        run.min_clients = entry.data.get("min_clients", 1)  # entries of earlier versions have none
        run.scheduler.start(entry.time)
        if self.ledger is not None:
            self.ledger.begun = entry.time

    def _restart(self, entry: Entry) -> None:
        """Continue in another process, with fresh noise, and the rounds and the number of clients that are planned by now."""
        self.budget.set_charged(self.budget.charged + entry.data.get("answers", 0))
        if "secret" in entry.data:
            self.budget.renew(entry)
            self.surveys.charge_open()
        if (run := self.run) is not None and (least := entry.data.get("min_clients")) is not None:
            if run.over is not None and "rounds" in entry.data:  # its clients were told so, and have gone home
                for client in self.present():
                    self.roster.set_presence(client, False)
            run.set_min_clients(least)
        if self.run is not None:
            self.run.plan(entry.data.get("rounds", self.rounds))

    def begin(self, num_clients: int) -> ServedRun:
        """Make the run, before its first task."""
        parts = self.setting, self._reports, self.ledger, self.roster, self.tasks
        self.run = ServedRun(*parts, num_clients, self.budget, self.publish, self._stepped)
        return self.run

    def _stepped(self, stepped: Stepped, is_last: bool) -> None:
        """Report a server step, and have clients evaluate the new model where that is due."""
        self.surveys.stepped(stepped.reports.client, stepped.version)
        self.on_step(self)
        share = self.setting.evaluate_share
        if share and (is_last or self.version % self.setting.evaluate_every == 0):
            try:
                self.surveys.begin(self.version, "evaluate", share, every=True)
            except Refused as refused:
                log.warning("no further evaluations by clients", extra={"reason": str(refused)})

    def _record(self, closed: ClosedSurvey) -> None:
        """Record the result of an evaluation or query, and what has been spent with it."""
        if closed.opened is not None and (spent := self.budget.spent()) is not None:
            closed = replace(closed, opened=replace(closed.opened, epsilon=spent["epsilon"]))
        if (ledger := self.ledger) is not None:
            self.store.until_done(lambda: ledger.surveyed(closed))
        self.on_survey(closed)

    def publish(self) -> Published:
        """Write the present model to a file, unless it is written already."""
        in_use = self.surveys.models()
        if self.run is None:
            return self.publication.publish(0, self.setting.initial, self._first_shared, in_use)
        server = self.run.server
        in_use.update(task.model for _, task in self.tasks.training())
        return self.publication.publish(self.version, server.state.params, server.shared(), in_use)
