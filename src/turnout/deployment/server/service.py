"""Answer what clients ask, without HTTP: who is there, who works on what, what has happened.

What changes anything is put into the queue of `Writer`.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from turnout.core.checks import count
from turnout.deployment.server import noise
from turnout.deployment.server.driver import Driver
from turnout.deployment.server.enrolment import Enrolment, banned
from turnout.deployment.server.happening import Happening, Kind
from turnout.deployment.server.leases import Attendance
from turnout.deployment.server.options import Options
from turnout.deployment.server.roster import REASONS
from turnout.deployment.server.served import Applied
from turnout.deployment.server.store import Entry, Outcome, Store
from turnout.deployment.server.verdicts import Refused, Verdict, hashed
from turnout.deployment.server.visits import LostTasks
from turnout.deployment.server.writer import Writer
from turnout.deployment.wire.administrator import CHANGES
from turnout.deployment.wire.format import Assignment
from turnout.evaluation.queries import Question
from turnout.protocol.survey import DECLINES, FIRST_TASK, SurveyPhase

_MOST_SURVEYS = 16  # evaluations and queries at a time

log = logging.getLogger("turnout.server")


class Service(Writer):
    """A federation that is asked by clients.

    Args:
        driver: the coordinator in motion, after all that is in the journal.
        store: where the journal is.
        last: the last entry of the journal; None where it is empty.
        options: of the server.
        clock: seconds that the server has run; for tests.

    Attributes:
        enrolment: who is a client, and who may become one.
        seen: when each client last sent a request, in seconds since 1970; since this process started.
    """

    def __init__(
        self,
        driver: Driver,
        store: Store,
        last: Entry | None = None,
        options: Options | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        options = options or Options()
        count("min_clients", options.min_clients)
        super().__init__(driver, store, last, options, clock)
        self.leases, self.min_clients, self.run = options.leases, options.min_clients, store.run
        most, codes = options.max_clients or 1_000_000, options.enrolment == "codes"
        self.enrolment = Enrolment(store, most, codes, lambda: self.driver.over, driver.roster.bans)
        self.seen: dict[int, float] = {}
        self._attendance = Attendance(self.clock)
        self._timers: list[tuple[float, int]] = []
        self._deadlines: list[tuple[float, int, int]] = []  # of tasks: a heap of (time, client, task)
        self._recent: dict[int, Outcome] = {}
        self._lost = LostTasks(self.clock)
        self._starting = driver.started
        now = self.clock()
        # Leases are not in the journal. Whoever was there gets the time to notice that the server is back.
        for client in driver.present():
            self._attendance.believe(client, self.leases.at_work + self.leases.grace + self.leases.longest_wait)
        with self._lock:
            self._set_deadlines(driver.present())
        for timer, due in driver.timers():
            heapq.heappush(self._timers, (max(due, now), timer))

    # What clients ask. Each of these may be called by any thread.

    def client_of(self, token: str) -> int | None:
        """Return whose token this is.

        Raises:
            Refused: where it is that of a client that is banned.
        """
        client = self.enrolment.client_of(token)
        if client is not None:
            self._check_ban(client)
            self.seen[client] = time.time()
        return client

    def standing(self, client: int) -> str:
        """Return what a client is to the server: ``"there"``, ``"away"``, ``"at work"``, ``"banned"`` or ``"removed"``."""
        roster = self.driver.roster
        if client in roster.bans:
            return "removed" if client in roster.removed else "banned"
        if self.driver.task_of(client) is not None:
            return "at work"
        return "there" if roster.is_there(client) else "away"

    def change(self, kind: Kind, client: int, text: str) -> Future[Verdict]:
        """Name, ban, admit again or remove a client."""
        return self._put(Happening(kind, client, data={"text": text}))

    def change_codes(self, data: dict[str, Any]) -> Future[Verdict]:
        """Add one-time codes (``add``, their hashes), or withdraw one or all (``withdraw``, a hash or None)."""
        return self._put(Happening("codes", data=data))

    def _check_ban(self, client: int) -> None:
        if (reason := self.driver.roster.bans.get(client)) is not None:
            raise Refused(403, banned(reason))

    @property
    def num_clients(self) -> int:
        """Number of clients that were ever enrolled."""
        return len(self.enrolment)

    @property
    def num_there(self) -> int:
        """Number of clients that are there."""
        return len(self._attendance)

    def enrol(self, token: str, code: str | None = None, name: str | None = None) -> Future[Verdict]:
        """Make whoever has this token a client, if they are none yet."""
        data = {"name": name, "code": None if code is None else hashed(code)}
        return self._put(
            Happening("enrol", digest=hashed(token), data={k: v for k, v in data.items() if v is not None})
        )

    def work_of(self, client: int, wait: float = 0.0, after: int = -1) -> dict[str, Any] | None:
        """Answer a question for work; None where there is nothing to do yet.

        Args:
            wait: seconds that the client is going to wait for an answer.
            after: the client wants no model of this version, or of an earlier one.

        Raises:
            Refused: where the client is banned.
        """
        self._check_ban(client)
        if self.driver.over is not None:
            return {"over": self.driver.over, "model": self.driver.digest}
        if after >= self.driver.version:
            return None
        if self._lost.wait(client):
            return None
        with self._lock:
            if self._attendance.believe(client, wait + self.leases.grace):
                self._put(Happening("join", client))
        if (task := self.driver.task_of(client)) is not None:
            self._attendance.heard(client, self.leases.at_work)
            return {"task": {**task.json(), "fingerprint": task.fingerprint}}
        return None

    def come_back(self, client: int, num_waiting: int) -> tuple[float, float]:
        """Return in how many seconds a client without work should ask again: at least, and at most."""
        if least := self._lost.wait(client):
            return least, 1.5 * least + 1.0
        if num_waiting >= self.leases.max_waiting or self.num_clients > self.leases.checkins * self.leases.longest_wait:
            least = max(5.0, 0.5 * self.num_clients / self.leases.checkins)
        most = 2.0 * least + 1.0
        self._attendance.heard(client, most + self.leases.grace)
        return least, most

    def leave(self, client: int) -> Future[None]:
        """Note that a client goes away; its task is given up."""
        with self._lock:
            return self._put(Happening("leave", client)) if self._attendance.leaves(client) else _done()

    def alive(self, client: int, task: int) -> Verdict:
        """Note a sign of life of a client at work; the answer is whether its work is still wanted."""
        verdict = self.state_of(client, task)
        if verdict.body["state"] == "open":
            self._attendance.heard(client, self.leases.at_work)
        return verdict

    def heard(self, client: int) -> None:
        """Note a sign of life of a client that sends a report."""
        self._attendance.heard(client, self.leases.at_work)

    def fail(self, client: int, task: int, why: str) -> Future[None]:
        """Note that a client cannot do its task: it left, its work came to nothing, or it declines for one of `DECLINES`.

        Raises:
            Refused: where it has no such task.
        """
        self.state_of(client, task)
        if why == "left":
            return self.leave(client)
        data = {"reason": why} if task >= FIRST_TASK and why in DECLINES else {}
        return self._put(Happening("fail", client, task, data=data))

    def survey(
        self, phase: SurveyPhase, share: float = 1.0, seconds: float | None = None, question: Question | None = None
    ) -> Future[int]:
        """Have clients judge the present model, or answer a query; answers with the number of the survey.

        Args:
            phase: ``"evaluate"`` or ``"query"``.
            share: of the clients who are asked.
            seconds: for which clients who come are asked, too; None ends with the last answer of those who are there.
            question: of a query.

        Raises:
            Refused: where the privacy budget of the run has no room for noised answers, and where many go on.
            ConfigurationError: for a question that these data have no answer to.
        """
        setting = self.driver.setting
        if (why := self.driver.refuses_survey()) is not None:
            raise Refused(409, why)
        if setting.answer_sum is not None:
            setting.answer_layout(question)
        elif question is not None:
            question.shapes(setting.widths)
        if len(self.driver.surveys.open) >= _MOST_SURVEYS:
            raise Refused(409, f"{_MOST_SURVEYS} evaluations and queries go on: wait for one to end")
        table = {} if question is None else question.table()
        secret = {"secret": noise.fresh()} if self.driver.surveys.noised else {}
        data = {"phase": phase, "share": share, "seconds": seconds, "question": table, **secret}
        return self._put(Happening("survey", data=data))

    def state_of(self, client: int, task: int) -> Verdict:
        """Return what became of a client's own task.

        Raises:
            Refused: where it has no such task.
        """
        if self.open(client, task) is not None:
            return Verdict(200, {"state": "open"})
        outcome = self._outcome(client, task)
        if outcome.outcome == "taken":
            return Verdict(200, {"state": "taken", "digest": outcome.digest})
        return Verdict(200, {"state": "dropped", "reason": outcome.outcome})

    def open(self, client: int, task: int) -> Assignment | None:
        """Return a client's task, if it is open."""
        return next((assignment for assignment in self.driver.tasks_of(client) if assignment.task == task), None)

    def ended(self, client: int, task: int, digest: str) -> Verdict | None:
        """Return the answer to a report on a task that has ended; None where it is open.

        Raises:
            Refused: where the client has no such task.
        """
        if self.open(client, task) is not None:
            return None
        return answer_of(self._outcome(client, task), digest)

    def report(self, client: int, task: int, digest: str, file: Path) -> Future[Verdict]:
        """Take a report that has been checked, and lies in a file."""
        self._attendance.heard(client, self.leases.at_work)
        return self._put(Happening("report", client, task, digest, file=file))

    # What the journal's thread does.

    def tick(self) -> float:
        """Note whose time is up; return how many seconds nothing more of this kind will happen."""
        now = self.clock()
        if not self._starting and self.num_clients >= self.min_clients <= len(self._attendance):
            self._starting = True
            setting = self.driver.setting
            self._put(Happening("start", data={"rounds": setting.rounds, **noise.first(setting.algorithm)}))
        with self._lock:
            # What is due becomes an entry of the journal and is applied as one, so that a replay has it at the same place.
            while self._timers and self._timers[0][0] <= now:
                self._put(Happening("timer", data={"timer": heapq.heappop(self._timers)[1]}))
            for client in self._attendance.silent():
                self._put(Happening("leave", client))
            while self._deadlines and self._deadlines[0][0] <= now:
                _, client, task = heapq.heappop(self._deadlines)
                if self.open(client, task) is not None and self._attendance.leaves(client):
                    self._put(Happening("leave", client, data={"reason": "late"}))
            first = [heap[0][0] for heap in (self._timers, self._deadlines) if heap]
            due = first + [at for at in (self._attendance.next_end(),) if at is not None]
        return max(0.0, min([*due, now + 1.0]) - now)

    def _admit(self, waiting: Happening, codes: set[str]) -> bool:
        """Return whether something is to be written; if not, it is answered."""
        match waiting.kind:
            case "enrol":
                verdict = self.enrolment.admit(waiting, codes)
            case "codes":
                verdict = self.enrolment.admit_change(waiting, codes)
            case _:
                return True
        if verdict is not None:
            waiting.answer(verdict)
        return verdict is None

    def _apply(self, entry: Entry, waiting: Happening) -> list[int]:
        """Do what follows of an entry, and answer; return whose question for work can be answered now."""
        applied = self.driver.apply(entry)
        self._note(applied)
        if applied.error is not None:
            waiting.fail(applied.error)
        elif entry.kind in ("enrol", "codes"):
            waiting.answer(self.enrolment.written(entry) if entry.kind == "enrol" else self.enrolment.changed(entry))
        elif entry.kind in CHANGES:
            assert entry.client is not None
            return [*applied.asked, *self._changed(entry.kind, entry.client, waiting)]
        elif entry.kind == "survey":
            waiting.answer(self.driver.surveys.number - 1)
        elif entry.kind == "report":
            assert entry.task is not None
            assert entry.client is not None
            outcome = next((other for other in applied.outcomes if other.task == entry.task), None)
            outcome = outcome or self._outcome(entry.client, entry.task)
            assert entry.digest is not None
            fresh = outcome in applied.outcomes
            verdict = answer_of(outcome, entry.digest)
            waiting.answer(Verdict(201, verdict.body) if fresh and verdict.status == 200 else verdict)
        else:
            waiting.answer(None)
        return applied.asked + applied.surveyed

    def _changed(self, kind: str, client: int, waiting: Happening) -> list[int]:
        """Take note of what an administrator changed of a client, and answer; return whose question for work ends by it."""
        if kind == "remove":
            self.enrolment.forget(client)
        waiting.answer(Verdict(200, {"client": client, "state": self.standing(client)}))
        return [client] if kind in REASONS and self._attendance.leaves(client) else []

    def _note(self, applied: Applied) -> None:
        """Take up what the driver says has followed."""
        self._outcomes += applied.outcomes
        for outcome in applied.outcomes:
            self._recent[outcome.task] = outcome
            if len(self._recent) > 100_000:
                del self._recent[next(iter(self._recent))]
        with self._lock:
            for client in (*applied.asked, *applied.surveyed):
                self._attendance.believe_at_least(client, self.leases.at_work)
            self._set_deadlines(applied.asked)
            for timer, due in applied.timers:
                heapq.heappush(self._timers, (due, timer))
            for client in self._lost.note(applied.outcomes):
                if self._attendance.leaves(client):
                    self._put(Happening("leave", client))

    def _set_deadlines(self, clients: Iterable[int]) -> None:
        """Set the deadlines of the tasks that clients have; after a restart they begin anew."""
        if self.leases.task_deadline is None:
            return
        due = self.clock() + self.leases.task_deadline
        for client in clients:
            if (task := self.driver.training_of(client)) is not None:
                heapq.heappush(self._deadlines, (due, client, task.task))

    def _outcome(self, client: int, task: int) -> Outcome:
        """Return what became of a client's task that is not open.

        Raises:
            Refused: where it never had such a task.
        """
        outcome = self._recent.get(task) or self.store.outcome(task)
        if outcome is None or outcome.client != client:
            raise Refused(404, f"client {client} has no task {task}")
        return outcome


def _done() -> Future[None]:
    """Return what is answered already."""
    done: Future[None] = Future()
    done.set_result(None)
    return done


def answer_of(outcome: Outcome, digest: str) -> Verdict:
    """Return the answer to a report on a task that has ended so."""
    if outcome.outcome != "taken":
        return Verdict(410, {"reason": outcome.outcome})
    if outcome.digest != digest:
        return Verdict(409, {"reason": "another report on this task was taken"})
    return Verdict(200, {"state": "taken"})
