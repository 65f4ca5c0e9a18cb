"""Evaluations and queries on a server: the tasks that are out, what comes back, and when each ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from turnout.deployment.server.presence import Presence
from turnout.deployment.server.publication import Published
from turnout.deployment.server.reports import Reports, is_of_the_machine
from turnout.deployment.server.served import Applied
from turnout.deployment.server.setting import RunSetting
from turnout.deployment.server.store import Entry, Outcome, Store
from turnout.deployment.wire.format import Assignment, told
from turnout.deployment.wire.surveys import question_tensor
from turnout.protocol.survey import DECLINES, FIRST_TASK, Asked, Closed, Survey

log = logging.getLogger("turnout.server")


class Surveys:
    """The surveys of a federation that is moved by a journal: the same entries lead to the same answers.

    Args:
        setting: what is run.
        store: where reports are.
        presence: who is there.
        publish: makes the present model a file.
        closed: called with what came of each survey.

    Attributes:
        open: surveys that go on, by number.
        number: how many there were.
        timers: when each ends, by the number of its timer, which is negative.
    """

    def __init__(
        self,
        setting: RunSetting,
        store: Store,
        presence: Presence,
        publish: Callable[[], Published],
        closed: Callable[[Closed], None],
    ) -> None:
        self._setting, self._presence, self._publish, self._closed = setting, presence, publish, closed
        self._reports = Reports(setting, store)
        self.open: dict[int, Survey] = {}
        self.number = 0
        self.timers: dict[int, float] = {}
        self._orders: dict[int, Assignment] = {}  # what the tasks of a survey say, but for their numbers
        self._tasks: dict[int, tuple[int, int]] = {}  # client and survey of each open task
        self._of: dict[int, list[int]] = {}  # open tasks of each client
        self._next = FIRST_TASK
        self._first_step: dict[int, int] = {}  # the version before the first step that each client was in

    def models(self) -> set[str]:
        """Return the digests of the models that are still judged."""
        return {order.model for order in self._orders.values()}

    def tasks_of(self, client: int) -> list[Assignment]:
        """Return the open tasks of a client, the oldest first."""
        return [self._assignment(task) for task in self._of.get(client, ())]

    def at_work(self) -> Iterable[int]:
        """Return the clients that have a task."""
        return self._of.keys()

    def stepped(self, clients: np.ndarray, version: int) -> None:
        """Note who was in the step from a version."""
        for client in clients.tolist():
            self._first_step.setdefault(client, version)

    def begin(self, asked: Asked, applied: Applied) -> None:
        """Ask those who are there; of surveys that come every so many steps, the one before ends."""
        for other in [each for each in self.open.values() if each.asked.every and asked.every]:
            self._close(other, applied)
        survey, model = Survey(asked, self._setting.seed), self._publish()
        question = {"question": question_tensor(asked.question)[None]} if asked.question else {}
        self.open[asked.number], self.number = survey, asked.number + 1
        self._orders[asked.number] = Assignment(
            FIRST_TASK, asked.version, asked.phase, 0, model.digest, model.size, self._setting.heartbeat,
            told(question, 0),
        )  # fmt: skip
        timer = -1 - asked.number
        self.timers[timer] = asked.ends
        applied.timers.append((timer, asked.ends))
        self._ask(survey, survey.begin(self._presence.there().tolist()), applied)

    def come_or_go(self, client: int, comes: bool, applied: Applied) -> None:
        """Ask a client that came, and give up the tasks of one that left."""
        if comes:
            for survey in self.open.values():
                self._ask(survey, survey.joined(client), applied)
            return
        for task in list(self._of.get(client, ())):
            self._end(task, applied.left, applied)

    def of_task(self, entry: Entry, applied: Applied) -> None:
        """Take what a client says on its open task: an answer, or that it declines."""
        assert entry.task is not None
        client, _ = self._tasks.get(entry.task, (None, None))
        if client is None or client != entry.client:
            return
        if entry.kind == "fail":
            reason = entry.data.get("reason", "died")
            self._end(entry.task, reason if reason in DECLINES else "died", applied)
            return
        assert entry.digest is not None
        try:
            body = self._reports.body(entry.task, entry.digest)
            answer = self._setting.answer_format(self._assignment(entry.task)).read(body)
        except Exception as error:
            if is_of_the_machine(error):
                raise
            log.error("answer dropped", extra={"task": entry.task, "reason": str(error) or repr(error)})
            self._end(entry.task, "unusable", applied)
            return
        survey = self._forget(entry.task)
        survey.answered(client, answer)
        applied.outcomes.append(Outcome(entry.task, client, "taken", entry.digest))

    def expired(self, timer: int, applied: Applied) -> None:
        """End a survey whose time is up."""
        if (survey := self.open.get(-1 - timer)) is not None:
            self._close(survey, applied)

    def settle(self, applied: Applied) -> None:
        """End surveys in which nobody is left to answer."""
        for survey in [each for each in self.open.values() if each.done]:
            self._close(survey, applied)

    def _ask(self, survey: Survey, clients: Iterable[int], applied: Applied) -> None:
        """Make tasks."""
        for client in clients:
            self._tasks[self._next] = client, survey.asked.number
            self._of.setdefault(client, []).append(self._next)
            self._next += 1
            applied.surveyed.append(client)

    def _assignment(self, task: int) -> Assignment:
        return replace(self._orders[self._tasks[task][1]], task=task)

    def _forget(self, task: int) -> Survey:
        """Take a task out of the open ones, and return its survey."""
        client, number = self._tasks.pop(task)
        self._of[client].remove(task)
        if not self._of[client]:
            del self._of[client]
        return self.open[number]

    def _end(self, task: int, reason: str, applied: Applied) -> None:
        """End a task without an answer."""
        client = self._tasks[task][0]
        self._forget(task).failed(client, reason)
        applied.outcomes.append(Outcome(task, client, reason))

    def _close(self, survey: Survey, applied: Applied) -> None:
        """End a survey."""
        number = survey.asked.number
        for task in [task for task, (_, of) in self._tasks.items() if of == number]:
            self._end(task, "late", applied)
        version, first = survey.asked.version, self._first_step
        seen = [first.get(client, version) < version for client in sorted(survey.answers)]
        # Before it is no longer open, for those who look meanwhile.
        self._closed(Closed(survey, np.array(seen, dtype=bool)))
        del self.open[number], self._orders[number]
        self.timers.pop(-1 - number, None)

    def facts(self) -> dict[str, Any]:
        """Return all that it carries, as plain values."""
        return {
            "number": self.number,
            "next": self._next,
            "open": [[survey.facts(), self._orders[number].json()] for number, survey in self.open.items()],
            "tasks": [[task, *of] for task, of in self._tasks.items()],
            "timers": list(self.timers.items()),
            "first_step": list(self._first_step.items()),
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore what `facts` returned."""
        if not facts:  # of a version without surveys
            return
        self.number, self._next = facts["number"], facts["next"]
        for saved, order in facts["open"]:
            survey = Survey.of(saved, self._setting.seed)
            self.open[survey.asked.number], self._orders[survey.asked.number] = survey, Assignment.read(order)
        for task, client, number in facts["tasks"]:
            self._tasks[task] = client, number
            self._of.setdefault(client, []).append(task)
            self.open[number].open.add(client)
        self.timers, self._first_step = dict(facts["timers"]), dict(facts["first_step"])
