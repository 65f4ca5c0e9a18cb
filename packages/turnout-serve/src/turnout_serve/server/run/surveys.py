"""Evaluations and queries on a server: begin them, take the answers of clients, and end each in time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from turnout.protocol.survey import DECLINES, FIRST_TASK, ClosedSurvey, Survey, SurveyPhase, SurveyRequest
from turnout_serve.server.journal.entries import Entry, Outcome
from turnout_serve.server.run.blame import is_of_the_machine
from turnout_serve.server.run.budget import PrivacyBudget
from turnout_serve.server.run.open_survey import OpenSurvey, facts_of, restored, survey_of
from turnout_serve.server.run.publication import Published
from turnout_serve.server.run.roster import Roster
from turnout_serve.server.run.setting import RunSetting
from turnout_serve.server.run.task_book import TaskBook
from turnout_serve.server.verdicts import Refused

LONGEST = 600.0
"""Seconds until the end of a survey that was given none, and of a phase of a masked sum without a task deadline."""

log = logging.getLogger("turnout.server")


class Surveys:
    """The evaluations and queries of a run; the same journal leads to the same answers.

    Args:
        setting: setting of the run.
        read: function that returns the body of a message, by its task and its digest.
        roster: tells which clients are present.
        book: the open tasks of clients.
        budget: noise, and the privacy budget.
        publish, record: write the present model, and the result of a survey.

    Attributes:
        noised: True where answers are noised, and spend the privacy budget.
        open: surveys that have not ended, by number.
        number: number of the next survey.
        timers: when each survey, or its present phase, ends, by the number of its timer.
        barred: clients that broke the protocol of a masked sum, and how.
        groups: phase and clients, as by `as_bits`, of each masked sum without noise that was opened.
    """

    def __init__(
        self,
        setting: RunSetting,
        read: Callable[[int, str], bytes],
        roster: Roster,
        book: TaskBook,
        budget: PrivacyBudget,
        publish: Callable[[], Published],
        record: Callable[[ClosedSurvey], None],
    ) -> None:
        self._setting, self._roster, self._book, self._budget = setting, roster, book, budget
        self._publish, self._record, self._read = publish, record, read
        self._first_step: dict[int, int] = {}  # the version before the first step of each client
        self.noised = setting.answer_sum is not None and setting.answer_sum.noise is not None
        self.open: dict[int, OpenSurvey] = {}
        self.number, self._next = 0, FIRST_TASK
        self.timers: dict[int, float] = {}
        self.barred: dict[int, str] = {}
        self.groups: list[tuple[str, int]] = []

    def models(self) -> set[str]:
        """Return the digests of the models that clients still evaluate."""
        return {survey.order.model for survey in self.open.values()}

    def stepped(self, clients: np.ndarray, version: int) -> None:
        """Record the clients of the step from a version."""
        for client in clients.tolist():
            self._first_step.setdefault(client, version)

    def begin(
        self,
        version: int,
        phase: SurveyPhase,
        share: float,
        seconds: float | None = None,
        question: Mapping[str, Any] | None = None,
        secret: str = "",
        every: bool = False,
    ) -> None:
        """Begin a survey, and give tasks to the clients that are present.

        Args:
            version: version of the model.
            phase: ``"evaluate"`` or ``"query"``.
            share: share of the clients that are asked.
            seconds: until it ends, for clients that join meanwhile; None ends it with the last answer.
            question: question of a query.
            secret: secret of its noise alone, hexadecimal; empty for an evaluation on schedule.
            every: True for an evaluation on schedule, which ends the one before.

        Raises:
            Refused: if the privacy budget has no room for it any more.
        """
        if (reason := self._budget.refuses_answer()) is not None:
            raise Refused(409, reason)
        ends = self._book.effects.time + (LONGEST if seconds is None else seconds)
        stays = seconds is not None
        request = SurveyRequest(self.number, phase, version, share, ends, stays, every, question or {})
        if self.noised:
            self._budget.charge()  # before any client is asked: an answer that a crash hides was sent all the same
        for other in [other for other in self.open.values() if other.survey.request.every and every]:
            self._close(other)
        survey = Survey(request, self._setting.seed)
        opened = OpenSurvey.begin(self._setting, survey, self._publish(), secret, self._read)
        self.open[request.number], self.number = opened, request.number + 1
        self._set_timer(opened, ends)
        self._give(opened, survey.begin(self._roster.present().tolist()))

    def set_presence(self, client: int, present: bool) -> None:
        """Ask a client that joined, and end the tasks of one that left."""
        if not present:
            for task in self._book.of_client(client):
                if (opened := self._survey_of(task.task)) is not None:
                    self._end(opened, task.task, self._book.effects.leave_reason)
            return
        for opened in self.open.values():
            self._give(opened, opened.survey.joined(client))

    def _give(self, opened: OpenSurvey, clients: Iterable[int]) -> None:
        """Give each client a task of a survey, after those that it has."""
        for client in clients:
            opened.tasks[self._next] = client
            self._book.add(client, opened.assignment(self._next, client))
            self._next += 1
            self._book.effects.surveyed.append(client)

    def _end(self, opened: OpenSurvey, task: int, outcome: str, digest: str | None = None) -> None:
        """End a task; with any outcome but ``"taken"``, its client has not answered.

        Args:
            opened: its survey.
            task: its number.
            outcome: ``"taken"``, or the reason why not.
            digest: digest of the message that was taken.
        """
        client = opened.tasks.pop(task)
        self._book.end(Outcome(task, client, outcome, digest))
        if outcome != "taken":
            opened.survey.failed(client, outcome)

    def _end_all(self, opened: OpenSurvey) -> None:
        """End all tasks of a survey, which are late."""
        for task in list(opened.tasks):
            self._end(opened, task, "late")

    def _survey_of(self, task: int) -> OpenSurvey | None:
        """Return the survey of a task; None where none is open."""
        return next((opened for opened in self.open.values() if task in opened.tasks), None)

    def handle(self, entry: Entry) -> None:
        """Take the answer of a client to an open task, or that it declines, or handle a timer."""
        if entry.kind == "timer":
            self._expired(entry.data["timer"])
            return
        client, task = entry.sender, entry.done
        if (opened := self._survey_of(task)) is None or opened.tasks[task] != client:
            return
        if entry.kind == "fail":
            reason = entry.data.get("reason", "died")
            self._end(opened, task, reason if reason in DECLINES else "died")
            return
        try:
            opened.take(client, task, entry.body)
        except Exception as error:
            if is_of_the_machine(error):
                raise
            log.error("answer dropped", extra={"task": task, "reason": str(error) or repr(error)})
            self._end(opened, task, "unusable")
            return
        self._end(opened, task, "taken", entry.digest)

    def _expired(self, timer: int) -> None:
        """End the survey, or its phase, whose timer has expired; a timer of an earlier phase has no effect."""
        opened = next((opened for opened in self.open.values() if opened.timer == timer), None)
        if opened is not None:
            self._end_all(opened)
            self._begin_phase(opened)

    def advance(self) -> None:
        """End all surveys, and phases of masked sums, in which no client is left to answer."""
        while done := [opened for opened in self.open.values() if opened.survey.done]:
            for opened in done:
                self._begin_phase(opened)

    def _begin_phase(self, opened: OpenSurvey) -> None:
        """Begin the next phase of a masked sum, or end a survey that has no further one."""
        self.timers.pop(opened.timer, None)
        clients = opened.begin_phase(self.barred, self._earlier(opened))
        self.barred |= opened.culprits
        clients = [client for client in clients if self._roster.is_present(client)]
        if not clients:
            self._close(opened)
            return
        # As in the phases of a sum of updates, clients that have not answered by the deadline of tasks are left out.
        self._set_timer(opened, self._book.effects.time + (self._setting.task_deadline or LONGEST))
        self._give(opened, opened.survey.next_phase(clients))

    def _earlier(self, opened: OpenSurvey) -> list[int]:
        """Return the groups of earlier sums, and of those that are open, that clients hold against a similar one."""
        phase, masked = opened.survey.request.phase, [other for other in self.open.values() if other is not opened]
        begun = [(other.survey.request.phase, other.masked.group) for other in masked if other.masked is not None]
        return [group for kind, group in (*self.groups, *begun) if kind == phase and group and not self.noised]

    def _set_timer(self, opened: OpenSurvey, time: float) -> None:
        self.timers[opened.timer] = time
        self._book.effects.timers.append((opened.timer, time))

    def _close(self, opened: OpenSurvey) -> None:
        """End a survey, and record its result."""
        self._end_all(opened)
        result = opened.result(self._budget.noise.of_answer)
        self.barred |= opened.culprits
        if opened.masked is not None and opened.masked.phase == "open" and not self.noised:
            pair = opened.survey.request.phase, opened.masked.group
            self.groups += [pair] if pair[1] and pair not in self.groups else []
        version, first = opened.survey.request.version, self._first_step
        seen = [first.get(client, version) < version for client in sorted(opened.survey.answers)]
        # Recorded while it is still open: threads that look it up find it open or recorded at any time.
        self._record(ClosedSurvey(opened.survey, np.array(seen, dtype=bool), result))
        self.timers = {timer: due for timer, due in self.timers.items() if survey_of(timer) != opened.number}
        del self.open[opened.number]

    def charge_open(self) -> None:
        """Charge each open survey with noise once more, or abandon it where the budget has no room.

        Another server that goes on from a copy of the same journal may open its answers, too, with other noise.
        """
        for opened in list(self.open.values()) if self.noised else ():
            if self._budget.refuses_answer() is None:
                self._budget.charge()
            else:
                opened.abandon()
                self._close(opened)
                self._book.effects.ended.clear()  # a restart has none, also in journals of earlier versions

    def unused(self) -> list[str]:
        """Return the digests of the messages of masked sums that are open."""
        return [body for opened in self.open.values() if opened.masked for body in opened.masked.bodies()]

    def facts(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "number": self.number,
            "next": self._next,
            "timers": list(self.timers.items()),
            "first_step": list(self._first_step.items()),
            "barred": list(self.barred.items()),
            "groups": [[phase, f"{group:x}"] for phase, group in self.groups],
            **facts_of(self.open.values()),
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore what `facts` returned; nothing from a checkpoint of a version without surveys."""
        if not facts:
            return
        self.number, self._next = facts["number"], facts["next"]
        self.open |= {opened.number: opened for opened in restored(facts, self._setting, self._read)}
        for task, client, number in facts["tasks"]:
            self._book.add(client, self.open[number].assignment(task, client))
        self.timers, self._first_step = dict(facts["timers"]), dict(facts["first_step"])
        self.barred = dict(facts.get("barred", ()))
        self.groups = [(phase, int(group, 16)) for phase, group in facts.get("groups", ())]
