"""Actions that a client asks of its driver: requests, pauses and computations, as values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnout.core.checks import TurnoutError
from turnout.core.display import printable

MOST_JSON = 16 << 20
"""Bytes of an answer that is no model: a secure sum among 10,000 clients needs 5 MB."""
MOST_SECONDS = 3600.0
"""The longest that a client waits because a server says so."""


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
    """An answer: its status, 0 where nothing came back, and its body, as far as it came."""

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
        """The reason that the server gives for a refusal, in characters that can be shown."""
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


def carry_out(action: Action, send: Callable[[Call], Answer]) -> Any:
    """Do what a session has yielded, without pauses and heartbeats: for clients that take turns in one thread.

    Args:
        action: what the session wants.
        send: sends a request and returns the answer.

    Returns:
        What the session is sent next.
    """
    match action:
        case Call():
            return send(action)
        case Transfer(call=call):
            return send(call)
        case Work(function=function):
            return function()
        case Sleep():
            return None
