"""A uvicorn server without its signal handlers, whose connections start TLS themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import uvicorn

from turnout.core import signals
from turnout.core.checks import ConfigurationError
from turnout_serve.server.http.handshake import Handshake

log = logging.getLogger("turnout.server")


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
