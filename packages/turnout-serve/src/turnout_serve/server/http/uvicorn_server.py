"""A uvicorn server without its signal handlers, and the TLS of its connections, which they start themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn

from turnout.core import signals
from turnout.core.checks import ConfigurationError
from turnout.core.display import printable

log = logging.getLogger("turnout.server")

CERTIFICATE = "client_certificate"
"""Field of a request's scope with the subject of the client's certificate, if the server requires one."""


def subject_of(transport: Any) -> str | None:
    """Return the subject of the certificate of a connection's client, such as ``CN=Ward 4``; None without one."""
    parts = [pair for part in (transport.get_extra_info("peercert") or {}).get("subject", ()) for pair in part]
    named = [text for name, text in parts if name == "commonName"] or [text for _, text in parts]
    return printable(", ".join(named), 100) if named else None


class Handshake(sslproto.SSLProtocol):
    """TLS of one connection, which counts as open from its first packet on.

    A server that listens with TLS reports a connection to its protocol after the handshake, so `BoundedHttp` would not count
    one whose handshake never ends. So the server listens without TLS, and each connection starts TLS itself.

    Args:
        http: a `turnout_serve.server.http.sockets.BoundedHttp`, which takes over after the handshake.
        context: certificate and key.
    """

    def __init__(self, http: Any, context: ssl.SSLContext) -> None:
        nobody: Any = None  # in place of a future that is resolved at the end of the handshake
        super().__init__(
            http.loop, http, context, nobody, server_side=True, ssl_handshake_timeout=http.limits.head_seconds
        )
        self._http, http.handshake = http, self
        self._network: str | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection and start the handshake, or close it if there are too many."""
        self._plain, self._network = transport, self._http.network(transport)
        if not self._http.peers.admit(self, self._network):
            transport.abort()
            return
        self._http.connections.add(self)  # for `shutdown`
        super().connection_made(transport)

    def over(self) -> None:
        """Stop counting the connection: `BoundedHttp` counts it from now on, or it is closed."""
        self._http.peers.forget(self, self._network)
        self._http.connections.discard(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End, during or after the handshake."""
        self.over()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection, because the server stops."""
        self._plain.abort()


class PlainUvicorn(uvicorn.Server):
    """uvicorn that counts connections before their TLS handshake, and handles signals in the main thread only.

    Args:
        config: configuration of uvicorn, without TLS.
        tls: reads the certificate and its key; it returns None without one.

    Attributes:
        has_reloaded: True once SIGHUP has had the certificate read again.
    """

    def __init__(self, config: uvicorn.Config, tls: Callable[[], ssl.SSLContext | None]) -> None:
        super().__init__(config)
        self._read, self.has_reloaded = tls, False
        self._context: Any = tls()  # replaced where the certificate is read again

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Task[None]]:
        """Serve, and stop at the end; yield the task that serves once the server listens, or has been stopped."""
        task = asyncio.create_task(self.serve())
        try:
            while not self.started and not task.done():
                await asyncio.sleep(0.01)
            self.should_exit |= not self.started
            yield task
        finally:
            self.should_exit = True
            await task

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen without TLS, which each connection starts itself; see `Handshake`.

        Raises:
            ConfigurationError: if the server cannot listen at its address.
        """
        config: Any = self.config
        http = config.http_protocol_class
        if self._context is not None:
            config.http_protocol_class = lambda **options: Handshake(http(**options), self._context)
        try:
            await super().startup(sockets)
        except SystemExit as ended:  # with which uvicorn ends the process
            raise ConfigurationError(
                f"host and port: the server cannot listen at {config.host}:{config.port} ({ended.__context__}): stop the "
                "program that does, or give another --host or --port"
            ) from None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, without raising it again afterwards; with a certificate, SIGHUP has it read again."""

        def handle(number: int) -> None:
            if number == signals.HANGUP and self._context is not None:
                self._reload()
            else:
                self.handle_exit(number, None)

        with signals.handled(handle):
            yield

    def _reload(self) -> None:
        """Read the certificate and the key again, for later connections; where they do not fit, the earlier ones stay."""
        try:
            self._context = self._read()
        except ConfigurationError as error:
            log.error("the certificate cannot be used, and the earlier one stays", extra={"reason": str(error)})
            return
        log.info("certificate reloaded")
        self.has_reloaded = True
