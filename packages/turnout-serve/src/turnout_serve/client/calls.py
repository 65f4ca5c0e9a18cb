"""The actions of a client as values: requests, pauses and computations, which a driver carries out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from turnout.core.checks import TurnoutError
from turnout.core.display import printable

MOST_JSON = 16 << 20
"""Maximum bytes of an answer other than a model: a secure sum of 10,000 clients needs 5 MB."""
MOST_SECONDS = 3600.0
"""Maximum seconds of a pause that a server asks for."""


_LINK = re.compile(r"https?://[A-Za-z0-9.:\[\]-]{1,255}/[!-~]{1,4000}")


class JoinError(TurnoutError, RuntimeError):
    """The server and this client cannot work together; the message says why."""


class Untrusted(JoinError):
    """One side does not trust the certificate of the other."""


@dataclass(frozen=True)
class Call:
    """A request to the server.

    Attributes:
        method, path: method and path of HTTP.
        json: body of plain values, or None.
        body: body of bytes, or None.
        headers: beside the token and the type of the body.
        resumes: True where a part of the answer is useful.
        most: maximum bytes of the answer.
        seconds: limit from the first to the last byte of the answer.
        heartbeat: request to send meanwhile, and the seconds between two of them; None sends none.
    """

    method: str
    path: str
    json: Mapping[str, Any] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    resumes: bool = False
    most: int = MOST_JSON
    seconds: float = 120.0
    heartbeat: tuple[Call, float] | None = None

    @property
    def content(self) -> tuple[bytes, dict[str, str]]:
        """Body as bytes, and headers with its type."""
        if self.json is not None:
            return json.dumps(self.json).encode(), {"content-type": "application/json", **self.headers}
        kind = {} if self.body is None else {"content-type": "application/octet-stream"}
        return self.body or b"", {**kind, **self.headers}


@dataclass(frozen=True)
class Answer:
    """An answer: its status, 0 without one, and the received part of its body."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """Return the body as a JSON object; empty for any other body."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def is_of_server(self) -> bool:
        """True for an answer of the server: its errors have a reason, which those of a proxy lack.

        Neither does it redirect, or answer a client in text, as the login page of a network does.
        """
        if 200 <= self.status < 300:
            return not self.headers.get("content-type", "").startswith("text/")
        return "reason" in self.table()

    @property
    def reason(self) -> str:
        """Reason of a refusal, or why there is no answer, in printable characters."""
        return printable(self.table().get("reason") or self.headers.get("error") or f"it answers {self.status}", 500)

    @property
    def retry_after(self) -> float:
        """Seconds of the header Retry-After, an hour at most."""
        after = self.headers.get("retry-after", "")
        return min(float(after), MOST_SECONDS) if re.fullmatch(r"[0-9]{1,9}", after) else 0.0


def bearer(token: str) -> dict[str, str]:
    """Return the header with a token."""
    return {"authorization": f"Bearer {token}"}


def links(table: Mapping[str, Any], hosts: Collection[str]) -> dict[str, str]:
    """Return the links to an object store in an answer of the server whose hosts the client trusts.

    A client that followed any link would send requests into its own network on behalf of a hostile server.
    """
    store = table.get("store")
    entries = store.items() if isinstance(store, dict) else ()
    allowed = {name: link for name, link in entries if isinstance(link, str) and _LINK.fullmatch(link)}
    return {name: link for name, link in allowed.items() if urlsplit(link).hostname in hosts}


@dataclass(frozen=True)
class Sleep:
    """Pause for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Compute a task, and send heartbeats meanwhile.

    Attributes:
        function: the computation; the session is sent its result, and None gives the task up.
        heartbeat: request to send meanwhile, and the seconds between two of them.
    """

    function: Callable[[], Any]
    heartbeat: tuple[Call, float]


@dataclass(frozen=True)
class Transfer(Call):
    """A request to an object store, without a token; its path is a link."""


Action = Call | Sleep | Work
Session = Generator[Action, Any, str]
"""Generator that yields actions, is sent their results, and returns why it ended."""


def carry_out(action: Action, send: Callable[[Call], Answer]) -> Any:
    """Carry out an action without pauses and heartbeats, for clients that take turns in one thread.

    Args:
        action: action of a session.
        send: function that sends a request and returns the answer.

    Returns:
        The result, which the session is sent next.
    """
    match action:
        case Call():
            return send(action)
        case Work(function=function):
            return function()
        case Sleep():
            return None
