"""A server's application that answers some requests wrongly, on purpose, and notes all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Kind = Literal["status", "lose_answer", "cut_request", "cut_answer", "damage", "twice", "drop"]
"""Answer something else; do what is asked, and lose the answer; lose the connection in the middle of the request, or of the
answer; change a byte of the answer; do the request twice, as a proxy may; lose the request."""


@dataclass(frozen=True)
class Fault:
    """One wrong answer.

    Attributes:
        kind: what goes wrong.
        status, body, headers: of the answer where another one is given.
        action: what else happens meanwhile: the server is restarted, or the client is killed and started again.
    """

    kind: Kind
    status: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    action: Literal["restart", "kill"] | None = None


@dataclass
class Exchange:
    """A request, and what was answered.

    Attributes:
        method, path, headers, body: of the request.
        begun, ended: seconds at which it was there, and was answered.
        status: of the answer; 0 where there was none that could be read.
        answer: its body.
        served: what the server itself answered; 0 where it was not asked.
        retry_after: seconds that the answer asks to wait.
        fault: the name of the scenario by which it was answered wrongly; None where it was not.
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

    @property
    def table(self) -> dict[str, Any]:
        """The answer as plain values; nothing where it holds none."""
        try:
            value = json.loads(self.answer)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def digest(self) -> str:
        """The digest of a report, as its header has it."""
        return self.headers.get("repr-digest", "")


Script = Callable[[Exchange], Fault | None]
"""Returns how a request is to be answered wrongly; None answers it well. Sets the `fault` of the exchange."""


class Misbehaving:
    """An application in front of a server's own.

    Args:
        app: the server's.
        script: which requests are answered wrongly.
        log: where all requests are noted.
        done: called with every exchange when it is over.
    """

    def __init__(self, app: ASGIApp, script: Script, log: list[Exchange], done: Callable[[Exchange], None]) -> None:
        self._app, self._script, self._log, self._done = app, script, log, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, well or wrongly."""
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
        exchange.ended = time.monotonic()
        self._done(exchange)

    async def _answer(
        self, exchange: Exchange, fault: Fault | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request as its fault says."""
        kind = None if fault is None else fault.kind
        if fault is not None and kind == "status":
            answer = JSONResponse(dict(fault.body), fault.status, dict(fault.headers))
            exchange.status, exchange.answer = fault.status, bytes(answer.body)
            exchange.retry_after = float(fault.headers.get("retry-after", 0))
            await answer(scope, receive, send)
            return
        if kind == "drop":
            await _hang_up(send, at_once=True)
            return
        whole = exchange.body if kind != "cut_request" else exchange.body[: len(exchange.body) // 2]
        messages = await self._asked(whole, kind == "cut_request", scope, receive)
        exchange.served = messages[0]["status"] if messages else 0
        if kind == "twice":
            messages = await self._asked(whole, False, scope, receive)
        if kind in ("lose_answer", "cut_request"):
            await _hang_up(send, at_once=True)
            return
        start, content = messages[0], b"".join(message.get("body", b"") for message in messages[1:])
        if kind == "damage":
            content = content[:-1] + bytes([content[-1] ^ 1])
        elif kind == "cut_answer":
            await send(start)
            await send({"type": "http.response.body", "body": content[: len(content) // 2], "more_body": True})
            await _hang_up(send, at_once=False)
            return
        exchange.status, exchange.answer = start["status"], content
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        exchange.retry_after = float(named.get("retry-after", 0))
        await send(start)
        await send({"type": "http.response.body", "body": content})

    async def _asked(self, body: bytes, cut: bool, scope: Scope, receive: Receive) -> list[Message]:
        """Return what the server's own application answers to a request with this body, which may be cut short."""
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
    """Close the connection of a request, with what was sent before or without."""
    transport: asyncio.Transport = send.__self__.transport  # type: ignore[attr-defined]
    if at_once:
        transport.abort()
    else:
        transport.close()
    await asyncio.sleep(0.02)  # until the connection is lost, so that nobody misses the rest of the answer
