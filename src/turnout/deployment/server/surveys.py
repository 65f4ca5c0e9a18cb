"""Evaluations and queries on a server: the tasks that are out, what comes back, and when each ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from turnout.deployment.server.blame import is_of_the_machine
from turnout.deployment.server.publication import Published
from turnout.deployment.server.reports import Reports
from turnout.deployment.server.roster import Roster
from turnout.deployment.server.served import Applied
from turnout.deployment.server.setting import RunSetting
from turnout.deployment.server.store import Entry, Outcome, Store
from turnout.deployment.server.summed_survey import SummedSurvey
from turnout.deployment.server.survey_tasks import SurveyTasks
from turnout.deployment.wire.format import Assignment, told
from turnout.deployment.wire.surveys import SURVEY, SumsFormat, question_tensor
from turnout.evaluation.queries import Question
from turnout.privacy.noise import gaussian
from turnout.protocol.answer_sum import AnswerLayout
from turnout.protocol.survey import DECLINES, FIRST_TASK, ClosedSurvey, OpenedSum, Survey, SurveyRequest

LONGEST = 600.0
"""Seconds after which a survey ends that nobody gave an end, and a phase of a sum of answers without a task deadline."""

_TIMERS = 10**12  # the timer of a phase is -1 - survey - phase * this

log = logging.getLogger("turnout.server")


class Surveys:
    """The surveys of a federation that is moved by a journal: the same entries lead to the same answers.

    Args:
        setting: what is run.
        store: where reports are.
        roster: who is there.
        publish: makes the present model a file.
        closed: called with what came of each survey, but for epsilon.
        secret: returns what the noise of a sum follows from, of the survey's own secret and of the answers in the sum.

    Attributes:
        open: surveys that go on, by number.
        number: how many there were.
        timers: when each, or its present phase, ends, by the number of its timer, which is negative.
        charged: noised answers that are counted in the privacy budget.
        barred: clients that broke the protocol of a sum, and how.
    """

    def __init__(
        self,
        setting: RunSetting,
        store: Store,
        roster: Roster,
        publish: Callable[[], Published],
        closed: Callable[[ClosedSurvey], None],
        secret: Callable[[str, str], int],
    ) -> None:
        self._setting, self._roster, self._publish, self._closed = setting, roster, publish, closed
        self._secret, self.charged, self.barred = secret, 0, dict[int, str]()
        self._sums: dict[int, SummedSurvey] = {}  # of surveys whose answers are masked
        self._secrets: dict[int, str] = {}  # of surveys with noise that were asked for by themselves
        self._reports = Reports(setting, store)
        self.open: dict[int, Survey] = {}
        self.number = 0
        self.timers: dict[int, float] = {}
        self._tasks = SurveyTasks()
        self._first_step: dict[int, int] = {}  # the version before the first step that each client was in

    def models(self) -> set[str]:
        """Return the digests of the models that are still judged."""
        return {order.model for order in self._tasks.orders.values()}

    def tasks_of(self, client: int) -> list[Assignment]:
        """Return the open tasks of a client, the oldest first."""
        return [self._tasks.assignment(task) for task in self._tasks.of_client(client)]

    def at_work(self) -> Iterable[int]:
        """Return the clients that have a task."""
        return self._tasks.at_work()

    def stepped(self, clients: np.ndarray, version: int) -> None:
        """Note who was in the step from a version."""
        for client in clients.tolist():
            self._first_step.setdefault(client, version)

    @property
    def noised(self) -> bool:
        """True where answers are noised, and spend the privacy budget."""
        return self._setting.answer_sum is not None and self._setting.answer_sum.noise is not None

    def begin(self, asked: SurveyRequest, applied: Applied, secret: str = "") -> None:
        """Ask those who are there; of surveys that come every so many steps, the one before ends.

        Args:
            asked: what is asked.
            applied: what follows.
            secret: of its noise alone, where the journal has one.
        """
        for other in [each for each in self.open.values() if each.request.every and asked.every]:
            self._close(other, applied)
        survey, model = Survey(asked, self._setting.seed), self._publish()
        question = {"question": question_tensor(asked.question)[None]} if asked.question else {}
        if secret:
            self._secrets[asked.number] = secret
        if self._masked:
            self._sums[asked.number] = SummedSurvey(self._setting, asked, self._reports.body)
            question[SURVEY] = torch.tensor([asked.number])
        self.open[asked.number], self.number = survey, asked.number + 1
        self._tasks.orders[asked.number] = Assignment(
            FIRST_TASK, asked.version, asked.phase, 0, model.digest, model.size, self._setting.heartbeat,
            told(question, 0),
        )  # fmt: skip
        timer = -1 - asked.number
        self.timers[timer] = asked.ends
        applied.timers.append((timer, asked.ends))
        self._make_tasks(survey, survey.begin(self._roster.there().tolist()), applied)

    def come_or_go(self, client: int, comes: bool, applied: Applied) -> None:
        """Ask a client that came, and give up the tasks of one that left."""
        if comes:
            for survey in self.open.values():
                self._make_tasks(survey, survey.joined(client), applied)
            return
        for task in self._tasks.of_client(client):
            self._end(task, applied.left, applied)

    def of_task(self, entry: Entry, applied: Applied) -> None:
        """Take what a client says on its open task: an answer, or that it declines."""
        client, number = self._tasks.whose(entry.task)
        if entry.task is None or client is None or number is None or client != entry.client:
            return
        if entry.kind == "fail":
            reason = entry.data.get("reason", "died")
            self._end(entry.task, reason if reason in DECLINES else "died", applied)
            return
        assert entry.digest is not None
        answer, assignment = dict[str, Any](), self._tasks.assignment(entry.task)
        try:
            if number in self._sums:
                self._sums[number].take(client, entry.digest, assignment)
            else:
                body = self._reports.body(entry.task, entry.digest)
                expected = self._setting.answer_format(assignment)
                assert isinstance(expected, SumsFormat)
                answer = expected.read(body)
        except Exception as error:
            if is_of_the_machine(error):
                raise
            log.error("answer dropped", extra={"task": entry.task, "reason": str(error) or repr(error)})
            self._end(entry.task, "unusable", applied)
            return
        self._tasks.end(entry.task)
        self.open[number].answered(client, answer)
        applied.outcomes.append(Outcome(entry.task, client, "taken", entry.digest))

    def expired(self, timer: int, time: float, applied: Applied) -> None:
        """End a survey, or the phase of one, whose time is up."""
        step, number = divmod(-1 - timer, _TIMERS)
        survey, masked = self.open.get(number), self._sums.get(number)
        if survey is None or (masked is not None and masked.step != step):
            return
        if masked is None:
            self._close(survey, applied)
            return
        self._end_all(survey, applied)
        self._advance(survey, masked, time, applied)

    def settle(self, time: float, applied: Applied) -> None:
        """End surveys, and phases of them, in which nobody is left to answer."""
        while done := [survey for survey in self.open.values() if survey.done]:
            for survey in done:
                masked = self._sums.get(survey.request.number)
                if masked is None:
                    self._close(survey, applied)
                else:
                    self._advance(survey, masked, time, applied)

    def _advance(self, survey: Survey, masked: SummedSurvey, time: float, applied: Applied) -> None:
        """Go on with the next phase of a sum under masks, or end the survey."""
        number = survey.request.number
        self.timers.pop(-1 - number - masked.step * _TIMERS, None)
        completed = [client for client in survey.answers if client not in self.barred]
        try:
            chosen = masked.advance(completed)
            told_each = masked.inputs(chosen) if chosen else {}
        except Exception as error:
            if is_of_the_machine(error):
                raise
            log.error("survey given up", extra={"survey": number, "reason": repr(error)})
            chosen, told_each = [], {}
        self.barred |= masked.culprits
        there = [client for client in chosen if self._roster.is_there(client)]
        if not there:
            self._close(survey, applied)
            return
        assert masked.phase is not None
        # Whoever has not answered by the deadline of tasks is left out, as in the phases of a sum of updates.
        timer, due = -1 - number - masked.step * _TIMERS, time + (self._setting.task_deadline or LONGEST)
        self.timers[timer] = due
        applied.timers.append((timer, due))
        common = {
            name: value for name, value in self._tasks.orders[number].told.items() if name in ("question", SURVEY)
        }
        of_each = {client: {**common, **told(values, 0)} for client, values in told_each.items()}
        self._tasks.begin_phase(number, masked.phase, of_each)
        self._make_tasks(survey, survey.next_phase(there), applied)

    def _make_tasks(self, survey: Survey, clients: Iterable[int], applied: Applied) -> None:
        """Give clients tasks."""
        for client in clients:
            self._tasks.make(client, survey.request.number)
            applied.surveyed.append(client)

    def _end(self, task: int, reason: str, applied: Applied) -> None:
        """End a task without an answer."""
        client, number = self._tasks.end(task)
        self.open[number].failed(client, reason)
        applied.outcomes.append(Outcome(task, client, reason))

    def _end_all(self, survey: Survey, applied: Applied) -> None:
        """End the open tasks of a survey."""
        for task in self._tasks.of_survey(survey.request.number):
            self._end(task, "late", applied)

    def _close(self, survey: Survey, applied: Applied) -> None:
        """End a survey."""
        number = survey.request.number
        self._end_all(survey, applied)
        opened = None if self._setting.answer_sum is None else self._opened(survey)
        version, first = survey.request.version, self._first_step
        seen = [first.get(client, version) < version for client in sorted(survey.answers)]
        # Before it is no longer open, for those who look meanwhile.
        self._closed(ClosedSurvey(survey, np.array(seen, dtype=bool), opened))
        self._tasks.close(number)
        for by_number in (self.open, self._sums, self._secrets):
            by_number.pop(number, None)
        for timer in [timer for timer in self.timers if (-1 - timer) % _TIMERS == number]:
            del self.timers[timer]

    def _opened(self, survey: Survey) -> OpenedSum:
        """Add up the answers of a survey, with noise where there is some."""
        number, layout = survey.request.number, self._layout(survey)
        if (masked := self._sums.get(number)) is not None:
            completed = list(survey.answers)
            vector, used, why = masked.total()
            self.barred |= masked.culprits
            survey.opened(used, completed)
            content = masked.bodies()
        else:
            vector, why = sum(map(layout.vector, survey.answers.values())), "nobody has answered"
            vector = vector if survey.answers else None
            content = [[client, survey.answers[client]] for client in sorted(survey.answers)]
        if vector is None:
            return OpenedSum(None, why)
        assert isinstance(vector, np.ndarray)
        if layout.server_deviation:
            secret = self._secret(self._secrets.get(number, ""), json.dumps([number, content]))
            federation = replace(self._setting.federation(1), secret=secret)
            drawn = gaussian("noise of an answer", federation, number, layout.size)
            vector = vector + layout.server_deviation * drawn.double().cpu().numpy()
        return OpenedSum(layout.totals(vector), "", layout.deviations, layout.least_examples)

    def give_up(self, number: int) -> None:
        """End a survey whose answers must not be opened."""
        survey = self.open[number]
        survey.lost |= dict.fromkeys(survey.answers, "unsummed")
        survey.answers = {}
        self._sums.pop(number, None)
        self._close(survey, Applied())

    @property
    def _masked(self) -> bool:
        """True where answers are added up under masks."""
        return self._setting.answer_sum is not None and self._setting.answer_sum.masking is not None

    def _layout(self, survey: Survey) -> AnswerLayout:
        asked = survey.request
        return self._setting.answer_layout(Question(**asked.question) if asked.question else None)

    def unused(self) -> list[str]:
        """Return the names of the messages of sums that go on."""
        return [body for masked in self._sums.values() for body in masked.bodies()]

    def facts(self) -> dict[str, Any]:
        """Return all that it carries, as plain values."""
        return {
            "number": self.number,
            "open": [[survey.facts(), self._tasks.orders[number].json()] for number, survey in self.open.items()],
            "timers": list(self.timers.items()),
            "first_step": list(self._first_step.items()),
            "charged": self.charged,
            "barred": list(self.barred.items()),
            "sums": [[number, masked.facts()] for number, masked in self._sums.items()],
            "secrets": list(self._secrets.items()),
            **self._tasks.facts(),
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore what `facts` returned."""
        if not facts:  # of a version without surveys
            return
        self.number = facts["number"]
        for saved, order in facts["open"]:
            survey = Survey.of(saved, self._setting.seed)
            self.open[survey.request.number], self._tasks.orders[survey.request.number] = survey, Assignment.read(order)
        for client, number in self._tasks.restore(facts):
            self.open[number].open.add(client)
        self.timers, self._first_step = dict(facts["timers"]), dict(facts["first_step"])
        self.charged, self.barred = facts.get("charged", 0), dict(facts.get("barred", ()))
        self._secrets = dict(facts.get("secrets", ()))
        for number, carried in facts.get("sums", ()):
            self._sums[number] = SummedSurvey(self._setting, self.open[number].request, self._reports.body)
            self._sums[number].restore(carried)
