"""Inject faults into the answers of a server, and record all exchanges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout_serve.client.calls import Answer

Kind = Literal["status", "lose_answer", "cut_request", "cut_answer", "damage", "twice", "drop"]
"""Replace the answer; process the request, and drop the answer; close the connection within the request, or within the
answer; change a byte of the answer; process the request twice, as a proxy may cause; drop the request."""


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        kind: kind of the fault.
        status, body, headers: status, body and headers of the answer that replaces another one.
        action: ``"restart"`` also restarts the server, ``"kill"`` kills the client and starts it again.
    """

    kind: Kind
    status: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    action: Literal["restart", "kill"] | None = None


@dataclass
class Exchange:
    """A request and its answer.

    Attributes:
        method, path, headers, body: method, path, headers and body of the request.
        begun, ended: times when the request has arrived, and just before the answer is sent, in seconds. Between `ended` and
            the next `begun` lies the whole pause of a client, however late this process runs again.
        status: status of the answer that the client received; 0 without one.
        answer: body of the answer.
        served: status of the server's own answer; 0 without one.
        retry_after: seconds of the header Retry-After.
        fault: name of the scenario that it belongs to; None without a fault.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    begun: float
    ended: float = 0.0
    status: int = 0
    answer: bytes = b""
    served: int = 0
    retry_after: float = 0.0
    fault: str | None = None

    def answered(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Record the answer that the client receives."""
        self.status, self.answer, self.retry_after = status, body, float(headers.get("retry-after", 0))
        self.ended = time.monotonic()

    @property
    def table(self) -> dict[str, Any]:
        """Answer as a JSON object; empty for any other body."""
        return Answer(self.status, self.answer).table()

    @property
    def task(self) -> dict[str, Any]:
        """Task in the answer to a request for work; empty without one."""
        return self.table.get("task", {}) if self.path == "/v1/checkin" else {}

    @property
    def digest(self) -> str:
        """Digest of a report, from its header."""
        return self.headers.get("repr-digest", "")


Script = Callable[[Exchange], Fault | None]
"""Returns the fault of a request, or None, and sets the `fault` of the exchange."""


class Misbehaving:
    """ASGI middleware that injects faults.

    Args:
        app: application of the server.
        script: function that returns the fault of a request.
        log: list that exchanges are appended to.
        done: called with every exchange at its end.
    """

    def __init__(self, app: ASGIApp, script: Script, log: list[Exchange], done: Callable[[Exchange], None]) -> None:
        self._app, self._script, self._log, self._done = app, script, log, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with or without a fault."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, unfinished = b"", True
        while unfinished:
            message = await receive()
            body, unfinished = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = Exchange(scope["method"], scope["path"], headers, body, time.monotonic())
        self._log.append(exchange)
        fault = self._script(exchange)
        await self._answer(exchange, fault, scope, receive, send)
        self._done(exchange)

    async def _answer(
        self, exchange: Exchange, fault: Fault | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request with a fault."""
        kind = None if fault is None else fault.kind
        if fault is not None and kind == "status":
            answer = JSONResponse(dict(fault.body), fault.status, dict(fault.headers))
            exchange.answered(fault.status, bytes(answer.body), fault.headers)
            await answer(scope, receive, send)
            return
        messages = [] if kind == "drop" else await self._processed(exchange, kind, scope, receive)
        if kind in ("drop", "lose_answer", "cut_request"):
            await _hang_up(send, at_once=True)
            return
        start, content = messages[0], b"".join(message.get("body", b"") for message in messages[1:])
        if kind == "cut_answer":
            await send(start)
            await send({"type": "http.response.body", "body": content[: len(content) // 2], "more_body": True})
            await _hang_up(send, at_once=False)
            return
        if kind == "damage":
            content = content[:-1] + bytes([content[-1] ^ 1])
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        exchange.answered(start["status"], content, named)
        await send(start)
        await send({"type": "http.response.body", "body": content})

    async def _processed(self, exchange: Exchange, kind: Kind | None, scope: Scope, receive: Receive) -> list[Message]:
        """Have the server process a request, cut or twice; return the messages of its last answer."""
        is_cut = kind == "cut_request"
        body = exchange.body[: len(exchange.body) // 2] if is_cut else exchange.body
        messages = await self._run(body, is_cut, scope, receive)
        exchange.served = messages[0]["status"] if messages else 0
        return await self._run(body, False, scope, receive) if kind == "twice" else messages

    async def _run(self, body: bytes, cut: bool, scope: Scope, receive: Receive) -> list[Message]:
        """Return the messages of the server's application for a request with this body, which may be interrupted."""
        pieces: list[Message] = [{"type": "http.request", "body": body, "more_body": cut}]
        messages: list[Message] = []

        async def receive_body() -> Message:
            if pieces:
                return pieces.pop()
            return {"type": "http.disconnect"} if cut else await receive()

        async def collect(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive_body, collect)
        return messages


async def _hang_up(send: Send, at_once: bool) -> None:
    """Close the connection of a request, at once or after sending buffered data."""
    transport: asyncio.Transport = send.__self__.transport  # type: ignore[attr-defined]
    if at_once:
        transport.abort()
    else:
        transport.close()
    await asyncio.sleep(0.02)  # until the connection is closed, or uvicorn logs an incomplete answer
