"""The coordinator in motion: journal entries go in, and what follows of each comes out. No clock, no network.

The same entries in the same order lead to the same state, bit for bit, so a server that died goes on from its last checkpoint
and the entries behind it, and `replay` recomputes a run from nothing but its journal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.core.checks import CheckpointError
from turnout.core.types import State
from turnout.deployment.server.blame import PieceFailed, is_of_the_machine
from turnout.deployment.server.ledger import Ledger
from turnout.deployment.server.noise import Noise
from turnout.deployment.server.publication import Publication, Published
from turnout.deployment.server.roster import REASONS, Roster
from turnout.deployment.server.served import Applied, ServedRun
from turnout.deployment.server.setting import RunSetting
from turnout.deployment.server.store import Entry, Store
from turnout.deployment.server.surveys import LONGEST, Surveys
from turnout.deployment.server.verdicts import Refused
from turnout.deployment.wire.administrator import CHANGES
from turnout.deployment.wire.format import Assignment
from turnout.privacy.plan import Plan
from turnout.protocol.batch import Stepped
from turnout.protocol.coordinator import Coordinator
from turnout.protocol.survey import FIRST_TASK, ClosedSurvey, SurveyPhase, SurveyRequest
from turnout.record import checkpoint
from turnout.record.query import save_run

log = logging.getLogger("turnout.server")


class Driver:
    """A federation that is moved by entries of a journal.

    Args:
        setting: what is run.
        store: where models and reports are.
        ledger: where tables are kept; None keeps none.

    Attributes:
        roster: who has enrolled, who is there, and who is banned or removed.
        run: the run, from its first task on; None before.
        applied: the number of the last entry that was applied.
        surveys: evaluations and queries.
        publication: the models that clients get.
        stepped: called after every server step.
        charged: called when a noised answer is counted in the privacy budget, before a client is asked for it.
        surveyed: called with what came of each survey.
    """

    def __init__(self, setting: RunSetting, store: Store, ledger: Ledger | None = None) -> None:
        self.setting, self.store, self.ledger = setting, store, ledger
        self.roster = Roster()
        self.run: ServedRun | None = None
        self.applied = 0
        self.stepped: Callable[[Driver], None] = lambda _: None
        self.charged: Callable[[Driver], None] = lambda _: None
        self.surveyed: Callable[[ClosedSurvey], None] = lambda _: None
        self.publication = Publication(store, setting.algorithm)
        self.surveys = Surveys(
            setting, store, self.roster, self._publish, self._closed, lambda *of: self.noise.of_answer(*of)
        )
        initial = setting.initial
        self._first_shared: State = {name: torch.zeros_like(initial) for name in setting.algorithm.keeps}
        self._time, self._applied = 0.0, Applied()
        self._noise = Noise()

    @property
    def started(self) -> bool:
        """True once tasks have been given."""
        return self.run is not None

    @property
    def over(self) -> str | None:
        """Reason for which the run has ended; None while it goes on, or clients still judge a model."""
        return None if self.surveys.open else self.trained

    @property
    def trained(self) -> str | None:
        """Reason for which there are no further steps; None where there are."""
        return None if self.run is None else self.run.over

    @property
    def progress(self) -> tuple[int, int, bool]:
        """Progress that a checkpoint would save: steps, surveys that have ended, and True where there are no further ones."""
        return self.version, self.surveys.number - len(self.surveys.open), self.over is not None

    @property
    def coordinator(self) -> Coordinator | None:
        """The server; None before the first task."""
        return None if self.run is None else self.run.coordinator

    @property
    def rounds(self) -> int:
        """Server steps that are planned."""
        rounds = None if self.run is None else self.run.coordinator.rounds
        return self.setting.rounds if rounds is None else rounds

    @property
    def version(self) -> int:
        """Server steps taken."""
        return 0 if self.run is None else self.run.coordinator.state.version

    @property
    def params(self) -> torch.Tensor:
        """The present model, ``[P]``."""
        return self.setting.initial if self.run is None else self.run.coordinator.state.params

    @property
    def noise(self) -> Noise:
        """Secret and history that the noise of the next step follows from."""
        return self._noise if self.run is None else self.run.noise

    @property
    def barred(self) -> dict[int, str]:
        """Clients that take part in no extra phases any more, and why."""
        return self.surveys.barred | ({} if self.run is None else self.run.extra.barred)

    @property
    def digest(self) -> str | None:
        """The digest of the last model that was published."""
        return None if (last := self.publication.last) is None else last.digest

    @property
    def empty_steps(self) -> int:
        """Server steps in a row that had no report, or none that could be used; since this process started."""
        return 0 if self.run is None else self.run.empty_steps

    def heard(self) -> dict[str, np.ndarray]:
        """Return what each client has contributed to server steps so far, ``{name: [N]}``."""
        if self.run is None or self.run.coordinator.influence is None:
            return {}
        return {name: column.copy() for name, column in self.run.coordinator.influence.columns().items()}

    @property
    def num_open(self) -> int:
        """Number of clients at work."""
        return len(set(self.surveys.at_work()).union(() if self.run is None else self.run.tasks))

    def tasks_of(self, client: int) -> list[Assignment]:
        """Return the open tasks of a client, in the order in which it gets them: those of surveys first."""
        training = self.training_of(client)
        return self.surveys.tasks_of(client) + ([] if training is None else [training])

    def task_of(self, client: int) -> Assignment | None:
        """Return the task that a client gets when it asks for work."""
        return next(iter(self.tasks_of(client)), None)

    def training_of(self, client: int) -> Assignment | None:
        """Return the open task of a client in a round or buffer."""
        return None if self.run is None else self.run.tasks.get(client)

    def present(self) -> list[int]:
        """Return who is there."""
        return self.roster.there().tolist()

    def ignores(self, client: int, comes: bool) -> bool:
        """Return whether nothing follows now, but for the table of who is there, of a client that comes or goes."""
        if self.surveys.open:
            return False
        return (
            self.run is None or self.run.over is not None or self.run.coordinator.scheduler.pace.ignores(client, comes)
        )

    def timers(self) -> list[tuple[int, float]]:
        """Return the timers that were set and have not run out."""
        return [*self.surveys.timers.items(), *(() if self.run is None else self.run.timers.items())]

    def apply(self, entry: Entry) -> Applied:
        """Do what follows of an entry, the next one of the journal.

        Whatever the content of an entry raises ends that entry and no more: the same journal raises it at each recovery, and
        a server that did not survive it could never start again.

        What a client sent that makes a piece raise is left out (`turnout.protocol.loop.use`), which follows from the journal,
        too. A piece that raises whatever clients send ends the server before anything of the entry is saved, so that the next
        start, with the piece mended, applies it once more.

        Raises:
            CheckpointError: for an entry out of order, or where the store cannot be read or written.
            PieceFailed: for a piece that raises whatever clients send.
        """
        if entry.number != self.applied + 1:
            raise CheckpointError(f"the journal has a gap: entry {entry.number} follows {self.applied}")
        self.applied = entry.number
        self._time, self._applied = entry.time, (applied := Applied())
        self.roster.note(entry)
        try:
            self._happen(entry, applied)
        except Exception as error:
            if is_of_the_machine(error):
                raise
            if entry.kind == "start":  # without which there is nothing to go on with
                raise PieceFailed.of(error, self.version, entry.number) from error
            log.exception("entry cannot be applied", extra={"entry": entry.number, "kind": entry.kind})
            applied.error = error
        try:
            self._go_on(entry, applied)
        except Exception as error:
            if is_of_the_machine(error):
                raise
            raise PieceFailed.of(error, self.version, entry.number) from error
        return applied

    def _go_on(self, entry: Entry, applied: Applied) -> None:
        """Do all that can be done now, before the next entry."""
        if self.run is not None and self.run.over is None:
            self.run.go_on(entry.time, applied)
        if self.run is not None and ((last := self.publication.last) is None or last.version != self.version):
            self._publish()  # also where nobody is there who could be asked to train it
        self.surveys.settle(entry.time, applied)

    def _happen(self, entry: Entry, applied: Applied) -> None:
        """Tell the roster and the run what happened."""
        match entry.kind:
            case "enrol":
                self.roster.enrol(str(entry.data.get("name") or ""))
                if self.run is not None:
                    self.run.coordinator.enrol()
            case "start":
                self._start(entry)
            case "restart":
                self._restart(entry)
            case "join" | "leave":
                assert entry.client is not None
                self._come_or_go(entry, entry.client, entry.data.get("reason", applied.left), applied)
            case kind if kind in CHANGES:
                assert entry.client is not None
                self.roster.change(entry.client, entry.kind, entry.data.get("text", ""))
                if entry.kind in REASONS:
                    self._come_or_go(entry, entry.client, REASONS[entry.kind], applied)
            case "survey":
                self._survey(**entry.data)
            case "timer" if entry.data["timer"] < 0:
                self.surveys.expired(entry.data["timer"], entry.time, applied)
            case "report" | "fail" if entry.task is not None and entry.task >= FIRST_TASK:
                self.surveys.of_task(entry, applied)
            case "report" | "fail" | "timer" if self.run is not None and self.run.over is None:
                _of_task(self.run, entry, applied)

    def _come_or_go(self, entry: Entry, client: int, reason: str, applied: Applied) -> None:
        """Note that a client came or went away, for a reason; one that is banned does not come."""
        comes = entry.kind == "join"
        if comes and client in self.roster.bans:
            return
        applied.left = reason
        self.roster.set(client, comes)
        if self.run is not None:
            self.run.come_or_go(entry.time, client, comes)
        self.surveys.come_or_go(client, comes, applied)

    def _start(self, entry: Entry) -> None:
        """Begin the run with the clients who are enrolled by now."""
        self._noise = self.noise.renewed(entry)
        self.run = self._begun(self.roster.num_clients)
        if (searched := entry.data.get("searched")) is not None:
            self.run.coordinator.settle(searched)
        self.run.coordinator.rounds = entry.data["rounds"]
        self.run.coordinator.count_answers(self.surveys.charged)
        self.run.scheduler.start(entry.time)
        if self.ledger is not None:
            self.ledger.begun = entry.time

    def _restart(self, entry: Entry) -> None:
        """Go on in another process: with fresh noise, and as many rounds as are planned by now."""
        self.surveys.charged += entry.data.get("answers", 0)
        if "secret" in entry.data:
            self._noise = self.noise.renewed(entry)
            if self.run is not None:
                self.run.renew(self._noise)
            self._charge_open()
        if self.run is not None:
            self.run.plan(entry.time, entry.data.get("rounds", self.rounds))

    def _begun(self, num_clients: int) -> ServedRun:
        """Return a run of so many clients, before its first task."""
        return ServedRun(
            self.setting, self.store, self.ledger, self.roster, num_clients, self._noise, self._publish,
            self._run_stepped,
        )  # fmt: skip

    def _run_stepped(self, stepped: Stepped) -> None:
        """Tell of a server step, and have clients judge the new model where that is due."""
        self.surveys.stepped(stepped.reports.client, stepped.version)
        self.stepped(self)
        assert self.run is not None
        due = self.version % self.setting.evaluate_every == 0 or self.run.coordinator.over is not None
        if not (self.setting.evaluate_share and due):
            return
        if (why := self.refuses_survey()) is not None:
            log.warning("clients do not evaluate the model any more", extra={"reason": why})
            return
        self._survey("evaluate", self.setting.evaluate_share, every=True)

    def refuses_survey(self) -> str | None:
        """Say why clients cannot be asked for an evaluation or query, if they cannot: their answers cost privacy."""
        plan = self.setting.algorithm.privacy
        if plan is None or not plan.is_noised:
            return None
        return self._plan(plan).refuses_answer(self.rounds, self.noise.lost, self.surveys.charged)

    def privacy(self) -> dict[str, Any] | None:
        """Return what the run has spent: epsilon, delta, and the noised answers so far; None without noise."""
        plan = self.setting.algorithm.privacy
        if plan is None or not plan.is_noised:
            return None
        spent = self._plan(plan).spent(self.version, self.rounds, self.noise.lost, self.surveys.charged)
        of_answers = (
            {} if plan.answers is None else {"answers": self.surveys.charged, "most_answers": plan.answers.most}
        )
        return {"epsilon": spent, "delta": plan.delta, "budget": plan.budget, **of_answers}

    def _plan(self, plan: Plan) -> Plan:
        """Return the privacy of the run with what was searched for its noise."""
        return plan if self.run is None else plan.of(self.run.coordinator.state.slots["aggregation"])

    def _charge_open(self) -> None:
        """Count surveys with noise once more that another server of the same journal may open, too, or give them up."""
        for number in list(self.surveys.open) if self.surveys.noised else ():
            if self.refuses_survey() is None:
                self._charge()
            else:
                self.surveys.give_up(number)

    def _charge(self) -> None:
        """Count a noised answer in the privacy budget."""
        self.surveys.charged += 1
        if self.run is not None:
            self.run.coordinator.count_answers(self.surveys.charged)
        self.charged(self)

    def _survey(
        self,
        phase: SurveyPhase,
        share: float,
        seconds: float | None = None,
        question: Any = None,
        every: bool = False,
        secret: str = "",
    ) -> None:
        """Begin a survey; without `seconds`, it ends with the last answer.

        Raises:
            Refused: where the privacy budget has no room for it, since it was asked for.
        """
        if (why := self.refuses_survey()) is not None:
            raise Refused(409, why)
        ends = self._time + (LONGEST if seconds is None else seconds)
        stays, number = seconds is not None, self.surveys.number
        asked = SurveyRequest(number, phase, self.version, share, ends, stays, every, question or {})
        if self.surveys.noised:
            self._charge()
        self.surveys.begin(asked, self._applied, secret)

    def _closed(self, closed: ClosedSurvey) -> None:
        """Record what came of a survey, and what has been spent with it."""
        if closed.opened is not None and (spent := self.privacy()) is not None:
            closed = replace(closed, opened=replace(closed.opened, epsilon=spent["epsilon"]))
        if self.ledger is not None:
            self.store.until_done(lambda: self.ledger.surveyed(closed))  # type: ignore[union-attr]
        self.surveyed(closed)

    def _publish(self) -> Published:
        """Make the present model a file."""
        if self.run is not None:
            params, shared = self.run.coordinator.state.params, self.run.coordinator.shared()
            needed = {assignment.model for assignment in self.run.tasks.values()}
            return self.publication.publish(self.version, params, shared, needed | self.surveys.models())
        return self.publication.publish(0, self.setting.initial, self._first_shared, self.surveys.models())

    def save(self) -> None:
        """Save tables and a checkpoint."""
        if self.ledger is None:
            return
        run, (model_groups, model) = self.run, self.setting.trained.saved()
        facts: dict[str, Any] = {
            "model": model,
            "journal": self.applied,
            "run": self.store.run,
            "version": self.version,
            "started": 0 if run is None else run.coordinator.federation.num_clients,
            "noise": vars(self.noise),
            "over": self.trained,
            "surveys": self.surveys.facts(),
            "unused": self.surveys.unused() + ([] if run is None else run.unused()),
            **self.roster.facts(),
            "ledger": self.ledger.facts(),
            **({} if run is None else run.facts()),
        }
        groups = {"model": {"params": self.setting.initial}} if run is None else run.coordinator.state_groups()
        tensors = checkpoint.flatten(groups | model_groups) | {"presence": torch.from_numpy(self.roster.there())}
        if self.trained is not None:
            self.ledger.set_clients(self.roster.num_clients, self.roster.names)
        save_run(self.ledger.folder, self.ledger.history, tensors, facts, finished=self.trained is not None)

    def restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any], folder: Path) -> None:
        """Restore a checkpoint.

        Raises:
            CheckpointError: for one of another run.
        """
        if facts.get("run") != self.store.run:
            raise CheckpointError(
                f"{folder} holds the checkpoint of another run than its journal: restore both from a copy"
            )
        self.applied = facts["journal"]
        self.roster.restore(facts)
        for client in tensors["presence"].tolist():
            self.roster.set(client, True)
        self._noise = Noise(**{**facts["noise"], "lost": tuple(map(tuple, facts["noise"]["lost"]))})
        if facts["started"]:
            self.run = self._begun(facts["started"])
            self.run.restore(facts, lambda group: checkpoint.unflatten(tensors, group))
        self.surveys.restore(facts.get("surveys", {}))
        if self.run is not None:
            self.run.coordinator.count_answers(self.surveys.charged)
            self._publish()
        if self.ledger is not None:
            self.ledger.restore(self.version, facts["ledger"])


def _of_task(run: ServedRun, entry: Entry, applied: Applied) -> None:
    """Tell a run that goes on what became of a task, or that a timer ran out."""
    if entry.kind == "timer":
        run.expired(entry.time, entry.data["timer"])
        return
    assert entry.client is not None
    assert entry.task is not None
    if entry.kind == "fail":
        run.scheduler.died(entry.time, entry.client, entry.task)
    else:
        assert entry.digest is not None
        run.reported(entry.time, entry.client, entry.task, entry.digest, applied)
