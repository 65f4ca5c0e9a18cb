"""The protocol of a client as a generator without I/O: it yields actions, which a driver carries out.

A process with one client (`turnout_serve.client.join`) and a swarm of thousands (`turnout_serve.client.swarm`) are
two drivers of the same generator.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnout.core.display import printable
from turnout.core.types import State
from turnout.protocol.survey import FIRST_TASK
from turnout_serve.client.calls import (
    MOST_SECONDS,
    Action,
    Answer,
    Call,
    JoinError,
    Session,
    Sleep,
    Transfer,
    Work,
    links,
)
from turnout_serve.client.newcomer import Newcomer
from turnout_serve.client.state import Pending
from turnout_serve.wire import bodies
from turnout_serve.wire.assignment import Assignment, seconds
from turnout_serve.wire.edge import Malformed
from turnout_serve.wire.format import PROTOCOL, decode, digest, repr_digest, size_limit

if TYPE_CHECKING:
    from turnout_serve.client.worker import Worker

log = logging.getLogger("turnout.client")

_UPLOADS = 5  # attempts to upload a report to an object store before it is sent to the server


def report_call(pending: Pending, begin: int = 0, end: int | None = None, last: int | None = None) -> Call:
    """Return the request that sends the bytes of a report from `begin` to `end`, or to the last one.

    `last` is that of `ClientState`.
    """
    headers = {
        "repr-digest": repr_digest(pending.digest),
        "upload-length": str(len(pending.body)),
        "upload-offset": str(begin),
        "task-fingerprint": pending.task.fingerprint,
        "last-task": "none" if last is None else str(last),
    }
    return Call("PUT", f"/v1/tasks/{pending.task.task}/report", body=pending.body[begin:end], headers=headers)


def _needs_model(task: Assignment) -> bool:
    """Return whether a client computes a task from the model; it answers queries and masks answers without."""
    return task.phase != "query" and (task.task < FIRST_TASK or task.phase == "evaluate")


class Client:
    """One client: the requests that it sends, and the computation of its tasks.

    Args:
        newcomer: enrolls and sends requests.
        trainer: computes tasks.

    Attributes:
        state: identity, memory and pending report.
        task: the last task.
        done: number of reports that were taken.
    """

    def __init__(self, newcomer: Newcomer, trainer: Worker) -> None:
        self._newcomer, self.trainer = newcomer, trainer
        self.state, self.leave = newcomer.state, newcomer.leave
        self.task: Assignment | None = None
        self.done = 0
        self._model: tuple[str, State] = ("", {})
        self._links: dict[str, str] = {}  # of the last task, to an object store

    def session(self) -> Session:
        """Enroll, then work until the run is over.

        Raises:
            JoinError: if the server refuses this client, or serves another run.
        """
        yield from self._enroll()
        if self.state.is_resumed and self.state.pending is not None:
            self._note(self.state.pending.task)  # the process may have ended before
        after, attempt = -1, 0
        while True:
            if self.state.pending is not None:
                yield from self._deliver(self.state.pending)
                continue
            body = {"protocol": PROTOCOL, "wait": self._newcomer.manners.wait, "after": after}
            answer = (yield from self._newcomer.ask(Call("POST", "/v1/checkin", body))).table()
            if answer.get("over"):
                return printable(answer["over"], 200)
            if isinstance(answer.get("task"), dict):
                task, attempt, self._links = Assignment.read(answer["task"]), 0, self._allowed(answer)
                if (yield from self._do(task)):
                    after = -1
                elif self._newcomer.manners.comes_back:
                    after = task.version
                else:
                    return "the model does not meet what this client requires"
            elif isinstance(pause := answer.get("come_back"), list) and len(pause) == 2:
                attempt = 0
                yield Sleep(self._newcomer.jitter.uniform(*(seconds(value, MOST_SECONDS) for value in pause)))
            else:  # not an answer of the server, but of a proxy, for example
                attempt += 1
                yield self._newcomer.pause(attempt)

    def _enroll(self) -> Generator[Action, Any, None]:
        """Enroll, or verify that the client is still enrolled."""
        answer = yield from self._newcomer.enroll()
        try:
            enrolled = bodies.Client.read(answer.table())
        except Malformed:
            raise JoinError(f"the server does not take this client: {answer.reason}") from None
        if self.state.run not in (None, enrolled.run):
            raise JoinError(
                f"the server is at another run ({enrolled.run}, not {self.state.run}): give another --state"
            )
        if self.state.client is not None and (answer.status == 201 or self.state.client != enrolled.client):
            log.warning("the server counts this client as a new one: its memory is deleted")
            self.state.forget()
        if self.state.client != enrolled.client:
            self.state.enrolled(enrolled.client, enrolled.run)

    def _do(self, task: Assignment) -> Generator[Action, Any, bool]:
        """Do a task, and hold the report; return False where the client leaves instead."""
        self.task = task
        self.trainer.remembers(self.state.sums)
        if (reason := self.trainer.declines(task)) is not None:
            yield from self._give_up(task, reason)
            return True
        model, memory = (yield from self._received(task)) if _needs_model(task) else {}, self.state.memory
        if model is None:
            return True
        memory = self.trainer.first_memory() if memory is None else memory
        if task.phase == "train" and not self.trainer.takes_part(task.version, model, memory):
            yield from self._give_up(task, "left")
            return False
        client = self.state.client
        assert client is not None
        result = yield Work(lambda: self.trainer.do(client, task, model, memory), self._heartbeat(task))
        if result is None:
            yield from self._give_up(task, "died")
        else:
            self.state.hold(Pending(task, *result))
            self._note(task)
        return True

    def _note(self, task: Assignment) -> None:
        """Record what the pending report on a task gives away, before it is sent."""
        self.trainer.remembers(self.state.sums)
        self.trainer.sends(task)

    def _heartbeat(self, task: Assignment) -> tuple[Call, float]:
        """Return the heartbeat of a task, and the seconds between two of them."""
        call = Call("POST", f"/v1/tasks/{task.task}/heartbeat", {}, headers=self._newcomer.token)
        return call, min(max(task.heartbeat, 0.1), MOST_SECONDS)

    def _give_up(self, task: Assignment, reason: str) -> Generator[Action, Any, None]:
        """Report that a task will not be done."""
        yield from self._newcomer.ask(Call("POST", f"/v1/tasks/{task.task}/fail", {"reason": reason}))

    def _received(self, task: Assignment) -> Generator[Action, Any, State | None]:
        """Download the model of a task, and resume after interruptions; return None where the server has deleted it."""
        if self._model[0] == task.model:
            return self._model[1]
        if task.size > size_limit(self.trainer.model):
            raise JoinError(
                f"the server's model has {task.size:,} bytes, and this client's {size_limit(self.trainer.model):,} at most: "
                "give the model that the server has"
            )
        if (body := (yield from self._downloaded(task))) is None:
            return None
        self._model = task.model, decode(body, self.trainer.model)
        return self._model[1]

    def _downloaded(self, task: Assignment) -> Generator[Action, Any, bytes | None]:
        """Download the bytes of the model of a task; return None where the server has deleted it."""
        body, attempt = b"", 0
        while digest(body) != task.model:
            body = body if len(body) < task.size else b""  # damaged: download it again
            answer = yield from self._requested(task, len(body))
            if answer.status == 404:
                yield self._newcomer.pause(4)  # before the server is asked for work, and may give the same task again
                return None
            if answer.status in (200, 206):
                body = answer.body if answer.status == 200 else body + answer.body
            if len(body) != task.size or digest(body) != task.model:
                attempt += 1
                yield self._newcomer.pause(attempt, answer)
        return body

    def _requested(self, task: Assignment, begin: int) -> Generator[Action, Any, Answer]:
        """Request a model from a byte on: once from the object store where there is a link, else from the server."""
        slow = 120.0 + task.size / 50_000  # seconds until the download is cut off, and resumed
        options: dict[str, Any] = {
            "resumes": True,
            "most": task.size,
            "seconds": slow,
            "heartbeat": self._heartbeat(task),
        }
        if not begin and (link := self._links.pop("model", None)) is not None:
            answer = yield Transfer("GET", link, **options)
            if answer.status == 200:
                return answer
        headers = {"range": f"bytes={begin}-"} if begin else {}
        return (yield from self._newcomer.once(Call("GET", f"/v1/models/{task.model}", headers=headers, **options)))

    def _deliver(self, pending: Pending) -> Generator[Action, Any, None]:
        """Send a report until its outcome is known."""
        path, attempt, length = f"/v1/tasks/{pending.task.task}", 0, len(pending.body)
        uploaded = yield from self._upload(pending)
        offset = length if uploaded else 0
        while True:
            call = replace(report_call(pending, offset, last=self.state.last), heartbeat=self._heartbeat(pending.task))
            answer = yield from self._newcomer.once(call)
            table = answer.table()
            # The memory of the client changes only with an answer that says the report was taken. Where an answer is lost,
            # the state of the task says whether it was; to train again would count the client twice.
            if answer.status in (200, 201) and table.get("state") == "taken":
                self.state.settle(pending)
                self.done += 1
                return
            if answer.status == 409 and "offset" in table:
                before, offset, uploaded = 0 if uploaded else offset, self._offset(table, pending), False
                if offset > before:
                    continue
                attempt += 1
                yield self._newcomer.pause(attempt)
                continue
            if answer.status not in (404, 409, 410, 413, 422):
                attempt += 1
                yield self._newcomer.pause(attempt, answer)
                answer = yield from self._newcomer.ask(Call("GET", path))
                table = answer.table()
                offset = length if uploaded else self._offset(table, pending)
                if table.get("state") != "dropped":
                    continue
            log.info("report dropped", extra={"task": pending.task.task, "reason": answer.reason})
            self.state.drop()
            return

    def _upload(self, pending: Pending) -> Generator[Action, Any, bool]:
        """Upload a report to the object store; return False where it has to be sent to the server."""
        state = Call("GET", f"/v1/tasks/{pending.task.task}")
        if self.task != pending.task and self._newcomer.manners.stores:  # pending from an earlier process
            self._links = self._allowed((yield from self._newcomer.ask(state)).table())
        for attempt in range(1, _UPLOADS + 1):
            if (link := self._links.get("report")) is None:
                return False
            answer = yield Transfer("PUT", link, body=pending.body, heartbeat=self._heartbeat(pending.task))
            if 200 <= answer.status < 300:
                return True
            log.info("upload failed", extra={"task": pending.task.task, "status": answer.status})
            yield self._newcomer.pause(attempt)
            self._links = self._allowed((yield from self._newcomer.ask(state)).table())  # the link may have expired
        return False

    def _allowed(self, table: Mapping[str, Any]) -> dict[str, str]:
        return links(table, self._newcomer.manners.stores)

    @staticmethod
    def _offset(table: Mapping[str, Any], pending: Pending) -> int:
        """Return the offset at which the server continues a report."""
        offset = table.get("offset", 0)
        return min(max(offset, 0), len(pending.body)) if type(offset) is int else 0
