"""Count TLS connections by address during their handshake, and close those that stall."""

from __future__ import annotations

import ssl
from asyncio import sslproto
from typing import Any

from turnout.core.display import printable

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
