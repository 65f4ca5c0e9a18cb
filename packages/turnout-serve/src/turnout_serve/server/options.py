"""Options of a server that do not depend on the run."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from turnout.core.checks import ConfigurationError, count
from turnout.protocol.counts import MAX_COUNT
from turnout_serve.server.http.limits import Limits
from turnout_serve.server.http.proxies import Networks, Proxies
from turnout_serve.server.leases import Leases
from turnout_serve.wire.tls import load_authority, load_pair


@dataclass(frozen=True)
class Options:
    """Options of a server.

    Attributes:
        host, port: address to listen at; port 0 is any free one.
        database: URL of a PostgreSQL database; None is a SQLite file in the folder.
        store: URL of an object store for models and reports, such as ``s3://BUCKET/PREFIX``; None is the folder, or the store
            that the run has used before.
        min_clients: number of clients that must be present whenever clients are asked to train, also after a restart.
        max_clients: maximum number of clients; None is as many as fit into memory.
        enrollment: ``"open"`` for anyone, ``"codes"`` for clients with a one-time code.
        leases: times for which silent clients count as present.
        certificate, key: files for TLS; None is without TLS, on this machine or behind a proxy.
        public_url: address by which clients reach the server, such as ``https://federation.example``; None is the one at
            which it listens.
        client_ca: file with the certificate of the authority that signs those of clients; None requires none.
        rate: requests per second of one client; 0 means no limit.
        linger: seconds for which the server still answers after the run is over.
        keep_reports: number of server steps whose reports are kept at least; None keeps all.
        limits: limits of sizes, times and connections.
        max_norm: maximum norm of an update, and of each other vector of a report; ``"auto"`` follows the last reports,
            see `turnout_serve.server.run.usual.UsualSizes`, and is never more than 100 times that of the first model, or of
            a vector of ones if that is larger. None has no limit.
        max_examples: maximum number of examples that a client may report; None is 2^40. Private sums have no such limit,
            because a report that it excludes would reveal something about its client's data.
        min_answers: number of clients that must answer an evaluation or query before its figures are published; noise
            protects figures of fewer.
        checkpoint_every: minimum seconds between two checkpoints.
        max_empty_steps: number of steps in a row without a usable report after which the run fails; 0 means no limit.
        page: True for a page that turns a browser into a client.
        public_status: True to show the status, metrics and page to anyone; otherwise they need the administrator's token.
        enrollments_per_address: new clients per hour of one address (IPv6: one /64), and as many at once; 0 means no limit.
            Clients that enroll again are not counted, nor those of this machine unless a proxy forwards them.
        proxies: machines whose header X-Forwarded-For gives the address of a client; that of all others is ignored.
        trusted: addresses without limits of connections, new clients, and requests without a token, such as that of a machine
            that simulates many clients.
    """

    host: str = "127.0.0.1"
    port: int = 8470
    database: str | None = None
    store: str | None = None
    min_clients: int = 1
    max_clients: int | None = None
    enrollment: str = "open"
    leases: Leases = field(default_factory=Leases)
    certificate: Path | None = None
    key: Path | None = None
    public_url: str | None = None
    client_ca: Path | None = None
    rate: float = 50.0
    linger: float = 30.0
    keep_reports: int | None = None
    limits: Limits = field(default_factory=Limits)
    max_norm: float | Literal["auto"] | None = "auto"
    max_examples: int | None = None
    min_answers: int = 3
    checkpoint_every: float = 60.0
    max_empty_steps: int = 10
    page: bool = False
    public_status: bool = False
    enrollments_per_address: int = 1000
    proxies: Proxies = field(default_factory=Proxies)
    trusted: Networks = field(default_factory=Networks)

    def __post_init__(self) -> None:
        count("port", self.port, least=0, most=65_535)
        count("enrollments_per_address", self.enrollments_per_address, least=0)
        count("min_answers", self.min_answers)
        if self.keep_reports is not None:
            count("keep_reports", self.keep_reports)
        if self.max_examples is not None:
            count("max_examples", self.max_examples, most=MAX_COUNT)
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("certificate and key go together: give both, or neither")
        if self.client_ca is not None and self.certificate is None:
            raise ConfigurationError("client_ca: certificates of clients need TLS: give certificate and key, too")
        if self.public_url is not None and not re.fullmatch(r"https?://[!-~]{1,500}", self.public_url):
            raise ConfigurationError(
                f"public_url: got {self.public_url!r}, needed an address such as https://federation.example"
            )
        for name in ("certificate", "key", "client_ca"):
            if (path := getattr(self, name)) is not None and not path.is_file():
                raise ConfigurationError(f"{name}: there is no file {path}")
        self.tls()

    def tls(self) -> ssl.SSLContext | None:
        """Return a TLS context with what the files contain now; None without a certificate.

        Raises:
            ConfigurationError: if a file cannot be used.
        """
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        load_pair(context, self.certificate, self.key)
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            load_authority(context, "client_ca", self.client_ca)
        return context
