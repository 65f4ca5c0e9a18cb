"""Connect to a server: its address, and the certificates of both sides."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from turnout.core.checks import ConfigurationError
from turnout_serve.client.exchange import WatchedClient, system_trust
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
        return WatchedClient(**self.options(), timeout=self.timeout)

    def options(self) -> dict[str, Any]:
        """Return the options of an HTTP client: what is for this machine passes no proxy that the environment names."""
        proxied = not is_loopback(self.url)
        return {"base_url": self.url, "verify": self.trust(), "headers": PLAIN, "trust_env": proxied}


def is_loopback(url: str) -> bool:
    """Return whether an address is one of this machine.

    >>> is_loopback("http://127.0.0.1:8470"), is_loopback("https://[::1]:1"), is_loopback("http://localhost:1")
    (True, True, True)
    >>> is_loopback("http://127.0.0.1.example.com"), is_loopback("http://127.0.0.1@example.com"), is_loopback("http://[")
    (False, False, False)
    """
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
