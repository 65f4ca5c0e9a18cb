"""HTTP/1.1 of uvicorn with limits for connections and request heads."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from importlib import import_module
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from turnout_serve.server.http.limits import Limits, Peers, network_of
from turnout_serve.server.http.proxies import Networks, Proxies
from turnout_serve.server.http.uvicorn_server import CERTIFICATE, Handshake, subject_of

_SLICE = 4 * 1024  # bytes that are parsed before they are counted
_PIPELINED = 8  # requests of one connection that wait for the answer to an earlier one
_GOODBYE = 1.0  # seconds that a peer has to close a connection when the server stops
_BODY = {b"content-length", b"transfer-encoding"}  # headers of a request with a body
_SPARE = 256  # file descriptors that are not for connections


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 with limits of size, count and time for all that happens before the application is called.

    httptools has no limits. It gets received data in small slices, and bytes that are not part of a body are counted.

    Attributes:
        limits: limits of each connection.
        peers: open connections by address, shared by all connections of a server.
        proxies: machines whose connections are not counted by address; the application counts the requests they forward.
        trusted: other machines whose connections are not counted by address.
        handshake: TLS of the connection; None without TLS.
    """

    limits: Limits
    peers: Peers
    proxies: Proxies
    trusted: Networks
    handshake: Handshake | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, or close it if there are too many."""
        super().connection_made(transport)
        if self.handshake is not None:
            self.handshake.over()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._framing = self._received = self._body = 0  # bytes: beside bodies, of this body, of bodies in this slice
        self._in_head, self._whole, self._fault = True, True, (400, "this is no HTTP request")
        self._network, self._subject = self.network(transport), subject_of(transport)
        if not self.peers.admit(self, self._network):
            self._fault = 429, "too many connections are open, of all clients or of this address: try again later"
            self.send_400_response("")
            return
        self._start("head", self.limits.head_seconds)

    def network(self, transport: Any) -> str | None:
        """Return the network that a connection is counted in; None where it is not counted by address."""
        address = get_remote_addr(transport)
        if address is None or address[0] in self.proxies.addresses or address[0] in self.trusted:
            return None
        return network_of(address[0])

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        for timer in self._timers.values():
            timer.cancel()
        self._unset_keepalive_if_required()  # which uvicorn leaves running, and the connection in memory, after a reset
        self.peers.forget(self, self._network)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, and refuse a request that exceeds a limit."""
        for start in range(0, len(data), _SLICE):
            if self.transport.is_closing():
                return
            piece, self._body = data[start : start + _SLICE], 0
            super().data_received(piece)
            self._received += self._body
            self._framing += len(piece) - self._body
            if self._framing > self.limits.head + self._received // 8:  # chunks of 64 bytes or more are fine
                self._refuse(431, f"a request has at most {self.limits.head} bytes beside its body")
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.timeout_keep_alive_task is None and not self._timers:
            self._start("head", self.limits.head_seconds)  # blank lines between requests stop the timer of uvicorn

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._framing = self._received = 0
        self._in_head, self._whole = True, False
        if "head" not in self._timers:
            self._start("head", self.limits.head_seconds)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are discarded."""
        if len(self.headers) >= self.limits.num_headers:
            self._fault = 431, f"a request has at most {self.limits.num_headers} headers"
            raise ValueError
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the application on the request."""
        parser: Any = self.parser
        if parser.should_upgrade() and _BODY.intersection(name for name, _ in self.headers):
            # The parser takes the rest of the connection for another protocol, and would read the body as a request.
            self._fault = 400, "this server upgrades no connection: leave out the header Upgrade, or the body"
            raise ValueError
        self._stop("head")
        self._in_head = False
        if self._subject is not None:
            self.scope[CERTIFICATE] = self._subject  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        if len(self.pipeline) > _PIPELINED:
            self.transport.abort()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer a request to upgrade as any other, and close the connection, because the parser has lost its place."""
        self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Pass a piece of the body to the application."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._whole = True
        self._stop("rest")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """End an answer; the rest of an unread body is awaited for a while, or the client would not see the answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._start("write", self.limits.write_seconds)
        elif not self._whole:
            self._start("rest", self.limits.body_seconds)

    def shutdown(self) -> None:
        """Close the connection, now or after its answer, without waiting for a peer that does not end TLS."""
        super().shutdown()
        if self.transport.is_closing():
            self._start("write", _GOODBYE)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also where the client has not read the last answer."""
        self.transport.abort()

    def pause_writing(self) -> None:
        """Start the timer of a client that does not read."""
        super().pause_writing()
        self._start("write", self.limits.write_seconds)

    def resume_writing(self) -> None:
        """Stop the timer, because the client has read."""
        self._stop("write")
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, and close the connection."""
        self._refuse(*self._fault)

    def _refuse(self, status: int, reason: str) -> None:
        """Answer with a reason, unless another answer has begun, and close the connection."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        body = json.dumps({"reason": reason}).encode()
        lines = (
            STATUS_LINE[status],
            b"content-type: application/json\r\nconnection: close\r\nretry-after: 5\r\n",
            b"content-length: %d\r\n\r\n" % len(body),
        )
        self.transport.write(b"".join(lines) + body)
        self.transport.close()
        self._start("write", self.limits.write_seconds)

    def _start(self, what: str, seconds: float) -> None:
        """Start a timer that closes the connection."""
        self._stop(what)
        self._timers[what] = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, what: str) -> None:
        """Stop a timer."""
        if (timer := self._timers.pop(what, None)) is not None:
            timer.cancel()


def bounded(limits: Limits, proxies: Proxies | None = None, trusted: Networks | None = None) -> type[BoundedHttp]:
    """Return the protocol class of one server, which has at most as many connections as there are file descriptors."""
    available = _file_descriptors(_SPARE + limits.connections)
    fitting = replace(limits, connections=max(1, min(limits.connections, available - _SPARE)))
    shared = {"limits": fitting, "peers": Peers(fitting)}
    return type("Http", (BoundedHttp,), {**shared, "proxies": proxies or Proxies(), "trusted": trusted or Networks()})


def _file_descriptors(needed: int) -> int:
    """Raise the limit of file descriptors to a number, if possible; return the limit."""
    try:
        resource: Any = import_module("resource")
    except ImportError:  # Windows has no such limit
        return needed
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed and hard != soft:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
