"""Answer the requests of clients, without HTTP: presence, tasks, reports, evaluations and queries.

Reads are answered at once. Every change of state is an event in the queue of a `JournalWriter`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from turnout.core.checks import count
from turnout.core.display import printable
from turnout.evaluation.queries import Question
from turnout.protocol.survey import DECLINES, FIRST_TASK, OF_EARLIER_SUMS, SurveyPhase
from turnout_serve.server.enrollment import UNKNOWN, Enrollment, banned, hashed
from turnout_serve.server.journal.driver import Driver
from turnout_serve.server.journal.entries import Entry, Outcome
from turnout_serve.server.journal.events import Event
from turnout_serve.server.journal.handler import EntryHandler
from turnout_serve.server.journal.journal_writer import JournalWriter
from turnout_serve.server.journal.timeouts import Timeouts
from turnout_serve.server.leases import RunClock
from turnout_serve.server.options import Options
from turnout_serve.server.run import noise
from turnout_serve.server.run.setting import norm_unit
from turnout_serve.server.run.usual import UsualSizes
from turnout_serve.server.verdicts import Refused, Verdict

log = logging.getLogger("turnout.server")

_MAX_SURVEYS = 16  # evaluations and queries at a time


class Service:
    """Answer the requests of clients of a run. All methods may be called by any thread.

    Args:
        driver: the run, after all entries of the journal.
        last: the last entry of the journal; None where it is empty.
        options: options of the server.
        clock: seconds that the server has run; None continues from the time of the last entry.

    Attributes:
        writer: writes and applies the events of requests.
        timeouts: leases, deadlines and timers.
        leave: function that makes a client absent; its tasks are dropped.
        enrollment: tokens and one-time codes.
        seen: time of each client's last request to this process, in seconds of the server.
        certificates: subject of the certificate that each client showed last to this process.
        usual: bounds of reports that follow from the last ones; None where the operator has set a fixed one, or none.
    """

    def __init__(
        self,
        driver: Driver,
        last: Entry | None = None,
        options: Options | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        options = options or Options()
        count("min_clients", options.min_clients)
        self.driver, self.store, self.run = driver, driver.store, driver.store.facts.run
        self.leases, self.min_clients = options.leases, options.min_clients
        self.clock = clock or RunClock(last.time if last else 0.0)
        self.writer = JournalWriter(driver, last, options, self.clock)
        self.timeouts = Timeouts(driver, options.leases, self.clock, self.writer.put)
        self.leave = self.timeouts.leave
        most, codes = options.max_clients or 1_000_000, options.enrollment == "codes"
        bans, numbers = driver.roster.bans, driver.setting.most_numbers(options.min_clients, most)
        self.enrollment = Enrollment(self.store, most, codes, lambda: driver.over, bans, most_numbers=numbers)
        self.writer.handler = EntryHandler(driver, self.enrollment, self.timeouts, self.min_clients)
        self.seen: dict[int, float] = {}
        self.certificates: dict[int, str] = {}
        self.usual: UsualSizes | None = None
        # A private sum drops no report because of its client's data.
        if options.max_norm == "auto" and not driver.setting.algorithm.nulls_dropped:
            self.usual = UsualSizes(norm_unit(driver.setting.initial))
            self.usual.restore(driver.store.sizes())

    def client_of(self, token: str) -> int | None:
        """Return the client that a token belongs to; None for an unknown token.

        Raises:
            Refused: if the client is banned.
        """
        client = self.enrollment.client_of(token)
        if client is not None:
            self._check_ban(client)
            self.seen[client] = self.clock()
        return client

    def known(self, token: str) -> dict[str, Any]:
        """Return the number and the name of the client that a token belongs to, for the log; nothing for another token."""
        client = self.enrollment.client_of(token)
        return {} if client is None else self.driver.roster.named(client)

    def _check_ban(self, client: int) -> None:
        if client in self.driver.roster.removed:  # in a long poll; later requests find no such token
            raise Refused(401, UNKNOWN)
        if (reason := self.driver.roster.bans.get(client)) is not None:
            raise Refused(403, banned(reason))

    @property
    def num_clients(self) -> int:
        """Number of clients that ever enrolled."""
        return len(self.enrollment)

    def enroll(self, token: str, code: str | None = None, name: str | None = None) -> Future[Verdict]:
        """Enroll the bearer of a token, unless it is a client already."""
        data = {"name": name, "code": None if code is None else hashed(code)}
        data = {name: value for name, value in data.items() if value is not None}
        return self.writer.put(Event("enrol", digest=hashed(token), data=data))

    def work_of(self, client: int, wait: float = 0.0, after: int = -1) -> dict[str, Any] | None:
        """Return the answer to a request for work; None where there is none yet.

        Args:
            client: its number; it counts as present from now on, until the run is over.
            wait: seconds that the client waits for an answer.
            after: the client wants a model of a later version than this.

        Raises:
            Refused: if the client is banned.
        """
        self._check_ban(client)
        if self.driver.over is not None:
            self.timeouts.leave(client)  # it goes home, and no evaluation or query is to wait for it
            return {"over": self.driver.over, "model": self.driver.publication.digest}
        if after >= self.driver.version or self.timeouts.suspension(client):
            return None
        self.timeouts.join(client, wait + self.leases.grace)
        if (task := self.driver.task_of(client)) is not None:
            self.timeouts.renew(client)
            return {"task": {**task.json(), "fingerprint": task.fingerprint}}
        return None

    def come_back(self, client: int, num_waiting: int) -> tuple[float, float]:
        """Return after how many seconds a client without work is to ask again: the minimum and the maximum."""
        if least := self.timeouts.suspension(client):
            return least, 1.5 * least + 1.0
        if num_waiting >= self.leases.max_waiting or self.num_clients > self.leases.checkins * self.leases.longest_wait:
            least = max(5.0, 0.5 * self.num_clients / self.leases.checkins)
        most = 2.0 * least + 1.0
        self.timeouts.presence.renew(client, most + self.leases.grace)
        return least, most

    def heartbeat(self, client: int, task: int) -> Verdict:
        """Renew the lease of a client at work; return the state of its task.

        Raises:
            Refused: if it has no such task.
        """
        verdict = self.state_of(client, task)
        if verdict.body["state"] == "open":
            self.timeouts.renew(client)
        return verdict

    def fail(self, client: int, task: int, reason: str, refused: str | None = None) -> Future[None]:
        """End a task without a report: the client leaves, its computation failed, or it declines for one of `DECLINES`.

        Args:
            client: its number.
            task: number of the task.
            reason: why it ends.
            refused: why the report of the client was refused; None where it sent none.

        Raises:
            Refused: if it has no such task.
        """
        self.state_of(client, task)
        if reason == "left":
            return self.leave(client)
        known = DECLINES if task >= FIRST_TASK else OF_EARLIER_SUMS
        data = {"reason": reason} if reason in known else {}
        data |= {} if refused is None else {"refused": printable(refused, 300)}
        return self.writer.put(Event("fail", client, task, data=data))

    def survey(
        self, phase: SurveyPhase, share: float = 1.0, seconds: float | None = None, question: Question | None = None
    ) -> Future[int]:
        """Begin an evaluation of the model by clients, or a query; return its number.

        Args:
            phase: ``"evaluate"`` or ``"query"``.
            share: share of the clients that are asked.
            seconds: seconds for which clients that join are asked, too; None ends with the last answer of those present
                now.
            question: question of a query.

        Raises:
            Refused: if the privacy budget has no room for noised answers, or if 16 are open.
            ConfigurationError: if these data have no answer to the question.
        """
        setting = self.driver.setting
        if (reason := self.driver.budget.refuses_answer()) is not None:
            raise Refused(409, reason)
        if setting.answer_sum is not None:
            setting.answer_layout(question)
        elif question is not None:
            question.shapes(setting.widths)
        if len(self.driver.surveys.open) >= _MAX_SURVEYS:
            raise Refused(409, f"{_MAX_SURVEYS} evaluations and queries go on: wait for one to end")
        table = {} if question is None else question.table()
        secret = {"secret": noise.fresh()} if self.driver.surveys.noised else {}
        data = {"phase": phase, "share": share, "seconds": seconds, "question": table, **secret}
        return self.writer.put(Event("survey", data=data))

    def state_of(self, client: int, task: int) -> Verdict:
        """Return the state of a client's task; it is open until the entry that ends it is applied.

        Raises:
            Refused: if it has no such task.
        """
        outcome = self.outcome(client, task)
        return Verdict(200, {"state": "open"}) if outcome is None else outcome.state

    def outcome(self, client: int, task: int) -> Outcome | None:
        """Return the outcome of a client's task; None for an open one, and until the entry that ends it is applied.

        A step that follows from a report takes as long as its model and its disk need. Until then, the report is in the
        journal, and its outcome may still change.

        Raises:
            Refused: if the client has no such task.
        """
        if self.driver.tasks.get(client, task) is not None:
            return None
        ending = self.driver.tasks.effects.ended.get(task)
        try:
            return self.store.outcomes.get(client, task)
        except Refused:
            if ending is None or ending.client != client:
                raise
            return None

    def check_state(self, client: int, last: str | None) -> None:
        """Log if a client's memory is not that after its last report, by the task that it states; None states none."""
        known = self.store.outcomes.last_taken.get(client)
        if last is not None and known is not None and last != str(known):
            log.warning(
                "the state of a client is not that after its last report: its folder was copied to two machines, or it or "
                "the server was restored from a copy",
                extra={**self.driver.roster.named(client), "last_task": known, "states": printable(last, 20)},
            )

    def report(
        self, client: int, task: int, digest: str, file: Path, sizes: Mapping[str, float] | None = None
    ) -> Future[Verdict]:
        """Take a report that was checked, in a file that is handed over, with the sizes of its vectors and figures."""
        self.timeouts.renew(client)
        data: dict[str, Any] = {"size": file.stat().st_size}
        if (usual := self.usual) is not None and sizes:
            data["sizes"] = {name: float(f"{size:.4g}") for name, size in sizes.items()}
        event = Event("report", client, task, digest, data=data, file=file)
        if (
            usual is not None and sizes
        ):  # once, however often a proxy or an attacker repeats the report before it is taken
            event.done.add_done_callback(lambda done: usual.add(sizes) if _is_accepted(done) else None)
        return self.writer.put(event)


def _is_accepted(done: Future[Verdict]) -> bool:
    """Return whether a report was taken that was not taken before."""
    return not done.cancelled() and done.exception() is None and done.result().status == 201
