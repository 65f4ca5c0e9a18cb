"""TLS connections before they speak HTTP: counted by address from their first packet on, and cut if they stall."""

from __future__ import annotations

import ssl
from asyncio import sslproto
from typing import Any


class Handshake(sslproto.SSLProtocol):
    """TLS of one connection, which counts as open while its handshake goes on.

    A server that listens with TLS tells a protocol of a connection when the handshake is over, so that the limits of
    `BoundedHttp` would not see one that never is. Here it listens without, and each connection begins TLS by itself.

    Args:
        http: a `turnout.deployment.server.sockets.BoundedHttp`, which takes the connection over.
        context: certificate and key.
    """

    def __init__(self, http: Any, context: ssl.SSLContext) -> None:
        nobody: Any = None  # waits for the end of the handshake
        super().__init__(
            http.loop, http, context, nobody, server_side=True, ssl_handshake_timeout=http.limits.head_seconds
        )
        self._http, http.handshake = http, self
        self._network: str | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection and begin, or close it if there are too many."""
        self._plain, self._network = transport, self._http.network(transport)
        if not self._http.peers.admit(self, self._network):
            transport.abort()
            return
        self._http.connections.add(self)  # for `shutdown`
        super().connection_made(transport)

    def over(self) -> None:
        """Count the connection no more: it speaks HTTP, which counts it, or is closed."""
        self._http.peers.forget(self, self._network)
        self._http.connections.discard(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End, in the midst of the handshake or behind it."""
        self.over()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection, because the server ends."""
        self._plain.abort()
