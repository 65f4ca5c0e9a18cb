"""Connect to a server: its address, the certificates of both sides, and the requests of its administrator."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError, TurnoutError, check_plain
from turnout_serve.client.calls import Answer, Call
from turnout_serve.client.exchange import WatchedClient, send, system_trust
from turnout_serve.wire.edge import Body
from turnout_serve.wire.tls import load_authority, load_pair

PLAIN = {"accept-encoding": "identity"}
"""Headers of all requests: a small compressed answer could expand to a large one."""


@dataclass(frozen=True)
class Connection:
    """Address of a server, and certificates.

    Attributes:
        url: ``https://...``, or ``http://...`` on this machine.
        ca: file with the certificate of the authority that signed the server's, or with the server's own; None trusts those
            of the system.
        certificate, key: files with the client's certificate, where the server requires one.
        pinned: file with the certificate of the server itself, in place of an authority and of the name in the address.
        timeout: seconds without data from the server after which a request fails.

    Raises:
        ConfigurationError: if an address is malformed, or files cannot be used.
    """

    url: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout: float = 90.0
    pinned: Path | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"url: got {self.url!r}, needed https://HOST:PORT, or http://HOST:PORT")

    @property
    def wants_certificate(self) -> bool:
        """True where a server that closes connections without an answer may require a certificate that this client lacks."""
        return self.url.startswith("https") and self.certificate is None

    def trust(self) -> ssl.SSLContext:
        """Return the TLS context."""
        if self.ca is None and self.certificate is None and self.pinned is None:
            return system_trust()
        trusted = self.ca if self.pinned is None else self.pinned
        context = ssl.create_default_context() if trusted is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.pinned is None
        # The certificate of the server may be the end of the chain.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if trusted is not None:
            load_authority(context, "ca", trusted)
        if self.certificate is not None:
            load_pair(context, self.certificate, self.key)
        return context

    def client(self) -> WatchedClient:
        """Return an HTTP client for one thread."""
        return WatchedClient(base_url=self.url, verify=self.trust(), timeout=self.timeout, headers=PLAIN)


def fetch(
    http: WatchedClient, path: str, stopped: Callable[[], bool] = lambda: False, token: str | None = None
) -> Answer:
    """Request a path, with a token if one is given; without an answer, the header ``error`` has the reason.

    Raises:
        JoinError: if one side does not trust the certificate of the other.
    """
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return send(http, Call("GET", path, headers=headers), stopped)


_DEPTH = 6  # levels of nesting of an answer: figures of a survey are lists of lists


class AdministrationFailed(TurnoutError):
    """The server has refused a request of its administrator, or has not answered."""


@dataclass(frozen=True)
class Administrator:
    """Send requests with the administrator's token.

    Attributes:
        connection: connection to the server.
        token: token of the administrator.
    """

    connection: Connection
    token: str = field(repr=False)

    def ask(self, form: type[Body], method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the answer, a JSON object.

        Args:
            form: form that the answer must have.
            method, path: method and path of HTTP; paths begin with ``/v1/admin/``.
            body: plain values; None sends no body.

        Raises:
            AdministrationFailed: if the server does not answer, or refuses, or its answer has another form.
        """
        call = Call(method, path, body, headers={"authorization": f"Bearer {self.token}"})
        with self.connection.client() as http:
            answer = send(http, call)
        if answer.status not in (200, 201):
            also = ", and does it need --certificate FILE --key FILE" if self.connection.wants_certificate else ""
            silent = f"no server answers there: is it running{also}? ({answer.headers.get('error')})"
            raise AdministrationFailed(f"{self.connection.url}: {answer.reason if answer.status else silent}")
        table = answer.table()
        try:
            check_plain(table, _DEPTH)
            form.read(table)
        except ValueError as error:
            raise AdministrationFailed(
                f"what answers at {self.connection.url} is no turnout server of this version: {error}"
            ) from None
        return table
