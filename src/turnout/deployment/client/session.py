"""What a client says to the server and does in between, without I/O: a driver sends, sleeps and computes for it.

A process for one client and a swarm of thousands in one process are two drivers of the same generator.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import re
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from turnout.core.checks import TurnoutError
from turnout.core.display import printable
from turnout.core.types import State
from turnout.deployment.client.state import ClientState, Pending
from turnout.deployment.wire.format import PROTOCOL, Assignment, Manifest, decode, digest, seconds, size_limit
from turnout.protocol.survey import FIRST_TASK

log = logging.getLogger("turnout.client")

MOST_JSON = 16 << 20
"""Bytes of an answer that is no model: a secure sum among 10,000 clients needs 5 MB."""
MOST_SECONDS = 3600.0
"""The longest that a client waits because a server says so."""
_UPLOADS = 5  # attempts to upload a report to an object store, before it is sent to the server
_LINK = re.compile(r"https?://[A-Za-z0-9.:\[\]-]{1,255}/[!-~]{1,4000}")
RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The name of a run, which is also that of a folder."""


class JoinError(TurnoutError, RuntimeError):
    """The server and this client cannot work together; the message says why."""


@dataclass(frozen=True)
class Call:
    """A request to the server.

    Attributes:
        method, path: of HTTP; in place of a path, a link to another server.
        json: a body of plain values; None is none.
        body: a body of bytes; None is none.
        headers: beside the token and the type of the body.
        resumes: whether an answer that is cut short is of use.
        most: bytes of the answer that are read; a longer one is none.
        seconds: that the answer may take from its first byte to its last.
    """

    method: str
    path: str
    json: Mapping[str, Any] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    resumes: bool = False
    most: int = MOST_JSON
    seconds: float = 120.0

    @property
    def content(self) -> tuple[bytes, dict[str, str]]:
        """The body as bytes, and the headers with its type."""
        if self.json is not None:
            return json.dumps(self.json).encode(), {"content-type": "application/json", **self.headers}
        kind = {} if self.body is None else {"content-type": "application/octet-stream"}
        return self.body or b"", {**kind, **self.headers}


@dataclass(frozen=True)
class Answer:
    """What came back: a status, 0 where nothing did; and the body, as far as it came."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """Return the body as plain values; nothing where it holds none."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def reason(self) -> str:
        """What the server says of why not, in characters that can be shown."""
        return printable(self.table().get("reason") or f"it answers {self.status}", 500)

    @property
    def retry_after(self) -> float:
        """The seconds after which the server wants to be asked again, an hour at most."""
        after = self.headers.get("retry-after", "")
        return min(float(after), MOST_SECONDS) if re.fullmatch(r"[0-9]{1,9}", after) else 0.0


@dataclass(frozen=True)
class Sleep:
    """Do nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Compute, and say from time to time that one is still at it.

    Attributes:
        function: what to compute.
        heartbeat: what to send meanwhile.
        every: seconds between two of them.

    Nothing in place of what was computed means that this client has given up the task.
    """

    function: Callable[[], Any]
    heartbeat: Call
    every: float


@dataclass(frozen=True)
class Transfer:
    """Exchange a model or a report with an object store, and send heartbeats meanwhile.

    Attributes:
        call: the request; it carries no token.
        heartbeat, every: as for `Work`.
    """

    call: Call
    heartbeat: Call
    every: float


Action = Call | Sleep | Work | Transfer
Session = Generator[Action, Any, str]
"""Yields what is to be done; is sent an `Answer`, nothing, or what was computed. Returns why it is over."""


def links(table: Mapping[str, Any], hosts: Collection[str]) -> dict[str, str]:
    """Return the links to an object store in an answer of the server, as far as they lead to hosts that the client allows.

    A client that followed any link would send requests into its own network for a hostile server.
    """
    store = table.get("store")
    entries = store.items() if isinstance(store, dict) else ()
    allowed = {name: link for name, link in entries if isinstance(link, str) and _LINK.fullmatch(link)}
    return {name: link for name, link in allowed.items() if urlsplit(link).hostname in hosts}


class Trainer(Protocol):
    """What computes for a client: see `turnout.deployment.client.worker`."""

    def first_memory(self) -> State:
        """Return what a client remembers before it first takes part."""
        ...

    def content(self, version: int, model: State, memory: State) -> bool:
        """Whether the client takes part with this model."""
        ...

    @property
    def model(self) -> Manifest:
        """The tensors that come with a task."""
        ...

    def declines(self, task: Assignment) -> str | None:
        """Return why the client does not do a task, one of `turnout.protocol.survey.DECLINES`; None where it does."""
        ...

    def do(self, client: int, task: Assignment, model: State, memory: State) -> tuple[bytes, State] | None:
        """Do a task: the report as bytes, and what the client remembers if it is taken; None gives the task up."""
        ...


@dataclass(frozen=True)
class Manners:
    """How a client behaves towards a server.

    Attributes:
        wait: seconds that the server may hold a question for work.
        backoff: seconds before the first new attempt, twice as many before every further one; drawn between 0 and this.
        longest: the most that this grows to.
        comes_back: whether a client that left because of the model looks at later ones.
        stores: hosts of object stores to which it follows links of the server; it exchanges the rest with the server.
    """

    wait: float = 25.0
    backoff: float = 0.5
    longest: float = 60.0
    comes_back: bool = True
    stores: frozenset[str] = frozenset()


class Newcomer:
    """A client before it has a model: it tells a server that waits for them the shape of its examples.

    Args:
        state: what it keeps.
        name: what people call it; the server shows it to its operator.
        code: a one-time code, where the server asks for one.
        data: the shape of its examples, for a server that asks for it; see `turnout.deployment.wire.data_shape.DataShape`.
        manners: how patient it is.
        jitter: where its random pauses come from; they change no result.
    """

    def __init__(
        self,
        state: ClientState,
        *,
        name: str | None = None,
        code: str | None = None,
        data: Mapping[str, Any] | None = None,
        manners: Manners | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self.state, self.name, self.code, self.data = state, name, code, data
        self.manners, self.jitter = manners or Manners(), jitter or random.Random()
        self.task: Assignment | None = None  # the last that was given

    def session(self) -> Session:
        """Tell the server the shape; it is over once the server knows one.

        Raises:
            JoinError: where the server does not take this client, or knows another shape.
        """
        yield from self._enrolled()
        return "the server knows the shape of the data"

    def leave(self) -> Call:
        """Return what tells the server that the client goes away."""
        return Call("POST", "/v1/leave", {}, headers=self._token)

    @property
    def _token(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.state.token}"}

    def _enrolled(self) -> Generator[Action, Any, Answer]:
        """Ask to be a client of the run until that is answered."""
        body = {"protocol": PROTOCOL, "name": self.name, "code": self.code, "data": self.data}
        call = Call("POST", "/v1/enrol", {k: v for k, v in body.items() if v is not None})
        answer = yield from self._ask(call, final=(404, 409, 410, 422))
        if answer.status == 422:
            raise JoinError(f"the server does not take this client: {answer.reason}")
        return answer

    def _ask(self, call: Call, final: Collection[int] = (404, 409, 410)) -> Generator[Action, Any, Answer]:
        """Send a request until it is answered: with success, or with a status that another attempt has, too.

        Raises:
            JoinError: where the answer is that this cannot work.
        """
        attempt = 0
        while True:
            answer = yield from self._once(call)
            if 200 <= answer.status < 300 or answer.status in final:
                return answer
            attempt += 1
            yield Sleep(max(self._pause(attempt), answer.retry_after))

    def _once(self, call: Call) -> Generator[Action, Any, Answer]:
        """Send a request with the token."""
        answer: Answer = yield replace(call, headers={**self._token, **call.headers})
        if answer.status in (400, 401, 403, 426):
            raise JoinError(f"the server does not take this client: {answer.reason}")
        return answer

    def _pause(self, attempt: int) -> float:
        """Return how long to wait before a new attempt, at random so that not all come at once."""
        return self.jitter.uniform(0.0, min(self.manners.longest, self.manners.backoff * 2.0 ** min(attempt, 30)))


class Client(Newcomer):
    """One client: its state, what computes for it, and how it behaves.

    Args:
        state: what it keeps.
        trainer: what computes.
        name, code, data, manners, jitter: as a `Newcomer` has them.
    """

    def __init__(
        self,
        state: ClientState,
        trainer: Trainer,
        *,
        name: str | None = None,
        code: str | None = None,
        data: Mapping[str, Any] | None = None,
        manners: Manners | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        super().__init__(state, name=name, code=code, data=data, manners=manners, jitter=jitter)
        self.trainer = trainer
        self._model: tuple[str, State] = ("", {})
        self.done = 0
        self._links: dict[str, str] = {}  # of the last task, to an object store

    def session(self) -> Session:
        """Enrol, then work until the run is over.

        Raises:
            JoinError: where the server does not want this client, or serves another run.
        """
        yield from self._enrol()
        after, attempt = -1, 0
        while True:
            if self.state.pending is not None:
                yield from self._deliver(self.state.pending)
                continue
            body = {"protocol": PROTOCOL, "wait": self.manners.wait, "after": after}
            answer = (yield from self._ask(Call("POST", "/v1/checkin", body))).table()
            if answer.get("over"):
                return printable(answer["over"], 200)
            if isinstance(answer.get("task"), dict):
                task, attempt, self._links = Assignment.read(answer["task"]), 0, self._allowed(answer)
                if (yield from self._do(task)):
                    after = -1
                elif self.manners.comes_back:
                    after = task.version
                else:
                    return "the model does not meet what this client requires"
            elif isinstance(pause := answer.get("come_back"), list) and len(pause) == 2:
                attempt = 0
                yield Sleep(self.jitter.uniform(*(seconds(value, MOST_SECONDS) for value in pause)))
            else:  # an answer of somebody else, such as a proxy
                attempt += 1
                yield Sleep(self._pause(attempt))

    def _enrol(self) -> Generator[Action, Any, None]:
        """Become a client of the run, or make sure that one still is."""
        answer = yield from self._enrolled()
        table = answer.table()
        client, run = table.get("client"), table.get("run")
        if type(client) is not int or not 0 <= client < 1 << 53 or not isinstance(run, str) or not RUN.fullmatch(run):
            raise JoinError(f"the server does not take this client: {answer.reason}")
        if self.state.run not in (None, run):
            raise JoinError(f"the server is at another run ({run}, not {self.state.run}): give another --state")
        if self.state.client != client:
            self.state.enrolled(client, run)

    def _do(self, task: Assignment) -> Generator[Action, Any, bool]:
        """Do a task, and keep the report; False where the client leaves instead."""
        self.task = task
        if (reason := self.trainer.declines(task)) is not None:
            yield from self._give_up(task, reason)
            return True
        asks_data = task.phase == "query" or (task.task >= FIRST_TASK and task.phase != "evaluate")
        model, memory = {} if asks_data else (yield from self._received(task)), self.state.memory
        if model is None:
            return True
        memory = self.trainer.first_memory() if memory is None else memory
        if task.phase == "train" and not self.trainer.content(task.version, model, memory):
            yield from self._give_up(task, "left")
            return False
        client = self.state.client
        assert client is not None
        result = yield Work(lambda: self.trainer.do(client, task, model, memory), *self._heartbeat(task))
        if result is None:
            yield from self._give_up(task, "died")
        else:
            self.state.hold(Pending(task, *result))
        return True

    def _heartbeat(self, task: Assignment) -> tuple[Call, float]:
        """Return the sign of life on a task, and the seconds between two of them."""
        call = Call("POST", f"/v1/tasks/{task.task}/heartbeat", {}, headers=self._token)
        return call, min(max(task.heartbeat, 0.1), MOST_SECONDS)

    def _give_up(self, task: Assignment, reason: str) -> Generator[Action, Any, None]:
        """Tell the server that a task will not be done."""
        yield from self._ask(Call("POST", f"/v1/tasks/{task.task}/fail", {"reason": reason}))

    def _received(self, task: Assignment) -> Generator[Action, Any, State | None]:
        """Return the model of a task, or None where the server has it no more; of one cut short, ask for the rest."""
        if self._model[0] == task.model:
            return self._model[1]
        if task.size > size_limit(self.trainer.model):
            raise JoinError(
                f"the server's model has {task.size:,} bytes, and this client's {size_limit(self.trainer.model):,} at most: "
                "give the model that the server has"
            )
        got, attempt = b"", 0
        while digest(got) != task.model:
            got = got if len(got) < task.size else b""  # damaged: once more from the start
            headers = {"range": f"bytes={len(got)}-"} if got else {}
            slow = 120.0 + task.size / 50_000  # what is not there by then is asked for from where it ended
            link = self._links.pop("model", None) if not got else None  # once; the server has the model, too
            path = link or f"/v1/models/{task.model}"
            call = Call("GET", path, headers=headers, resumes=True, most=task.size, seconds=slow)
            answer = (yield Transfer(call, *self._heartbeat(task))) if link else (yield from self._once(call))
            if link is not None and answer.status != 200:
                continue
            if answer.status == 404:
                return None
            if answer.status in (200, 206):
                got = answer.body if answer.status == 200 else got + answer.body
            if len(got) != task.size or digest(got) != task.model:
                attempt += 1
                yield Sleep(max(self._pause(attempt), answer.retry_after))
        self._model = task.model, decode(got, self.trainer.model)
        return self._model[1]

    def _deliver(self, pending: Pending) -> Generator[Action, Any, None]:
        """Send a report until the server has said what became of it."""
        path, attempt, length = f"/v1/tasks/{pending.task.task}", 0, len(pending.body)
        uploaded = yield from self._upload(pending)
        offset = length if uploaded else 0
        value = base64.b64encode(bytes.fromhex(pending.digest)).decode()
        headers = {
            "repr-digest": f"sha-256=:{value}:",
            "upload-length": str(length),
            "task-fingerprint": pending.task.fingerprint,
        }
        while True:
            body = pending.body[offset:]
            answer = yield from self._once(
                Call("PUT", f"{path}/report", body=body, headers=headers | {"upload-offset": str(offset)})
            )
            table = answer.table()
            if answer.status in (200, 201):
                self.state.settle()
                self.done += 1
                return
            if answer.status == 409 and "offset" in table:
                before, offset, uploaded = 0 if uploaded else offset, self._offset(table, pending), False
                if offset > before:
                    continue
                attempt += 1
                yield Sleep(self._pause(attempt))
                continue
            if answer.status in (404, 409, 410, 413, 422):
                log.info("report dropped", extra={"task": pending.task.task, "reason": answer.reason})
                self.state.drop()
                return
            attempt += 1
            yield Sleep(max(self._pause(attempt), answer.retry_after))
            table = (yield from self._ask(Call("GET", path))).table()
            offset = length if uploaded else self._offset(table, pending)

    def _upload(self, pending: Pending) -> Generator[Action, Any, bool]:
        """Upload a report to the object store of the run; return False where it is to be sent to the server."""
        state = Call("GET", f"/v1/tasks/{pending.task.task}")
        if self.task != pending.task and self.manners.stores:  # of an earlier process
            self._links = self._allowed((yield from self._ask(state)).table())
        for attempt in range(1, _UPLOADS + 1):
            if (link := self._links.get("report")) is None:
                return False
            call = Call("PUT", link, body=pending.body, seconds=120.0)
            answer = yield Transfer(call, *self._heartbeat(pending.task))
            if 200 <= answer.status < 300:
                return True
            log.info("upload failed", extra={"task": pending.task.task, "status": answer.status})
            yield Sleep(self._pause(attempt))
            self._links = self._allowed((yield from self._ask(state)).table())  # the link may have expired
        return False

    def _allowed(self, table: Mapping[str, Any]) -> dict[str, str]:
        return links(table, self.manners.stores)

    @staticmethod
    def _offset(table: Mapping[str, Any], pending: Pending) -> int:
        """Return from where the server wants a report."""
        offset = table.get("offset", 0)
        return min(max(offset, 0), len(pending.body)) if type(offset) is int else 0
