"""Options of a server that do not depend on the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from turnout.core.checks import ConfigurationError, count
from turnout.deployment.server.leases import Leases
from turnout.deployment.server.limits import Limits
from turnout.deployment.server.proxies import Networks, Proxies


@dataclass(frozen=True)
class Options:
    """Options of a server.

    Attributes:
        host, port: where it listens; port 0 is any that is free.
        database: URL of a PostgreSQL database; None is a SQLite file in the folder.
        store: URL of an object store for models and reports, such as ``s3://BUCKET/PREFIX``; None is the folder, or where
            the run in it has them.
        min_clients: so many are there before the first task is given.
        max_clients: no more are enrolled; None is as many as fit.
        enrolment: ``"open"`` for anyone, ``"codes"`` for those who have a one-time code.
        leases: how long silent clients are believed in.
        certificate, key: files for TLS; None is without, for this machine or behind a proxy.
        client_ca: a file with the certificate of who signs those of clients; None asks for none.
        rate: requests a second of one client; 0 is no limit.
        linger: seconds that the server goes on to answer when the run is over.
        keep_reports: server steps whose reports are kept at least; None keeps all.
        limits: what is read, waited for and held of anybody.
        max_norm: greatest norm of an update, and of each other vector of a report; ``"auto"`` is 100 times that of the first
            model, or of a vector of ones where that is larger. None takes any.
        checkpoint_every: seconds between two checkpoints, if there was a step in between.
        max_empty_steps: end the run after so many steps in a row without a report that can be used; 0 never does.
        page: whether there is a page in which a browser becomes a client.
        enrolments_per_address: new clients an hour of one address (IPv6: one /64), and as many at once; 0 is no limit.
            Clients that enrol again are not counted, nor those of this machine unless a proxy forwards them.
        proxies: whose header X-Forwarded-For gives the address of a client; all others' is ignored.
        trusted: addresses whose connections, new clients and requests without a token are not limited, such as that of a
            machine that simulates many clients.
    """

    host: str = "127.0.0.1"
    port: int = 8470
    database: str | None = None
    store: str | None = None
    min_clients: int = 1
    max_clients: int | None = None
    enrolment: str = "open"
    leases: Leases = field(default_factory=Leases)
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    rate: float = 50.0
    linger: float = 30.0
    keep_reports: int | None = None
    limits: Limits = field(default_factory=Limits)
    max_norm: float | Literal["auto"] | None = "auto"
    checkpoint_every: float = 60.0
    max_empty_steps: int = 10
    page: bool = False
    enrolments_per_address: int = 1000
    proxies: Proxies = field(default_factory=Proxies)
    trusted: Networks = field(default_factory=Networks)

    def __post_init__(self) -> None:
        count("enrolments_per_address", self.enrolments_per_address, least=0)
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("certificate and key go together: give both, or neither")
        if self.client_ca is not None and self.certificate is None:
            raise ConfigurationError("client_ca: certificates of clients need TLS: give certificate and key, too")
        for name in ("certificate", "key", "client_ca"):
            if (path := getattr(self, name)) is not None and not path.is_file():
                raise ConfigurationError(f"{name}: there is no file {path}")
