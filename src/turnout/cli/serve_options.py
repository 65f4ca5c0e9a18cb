"""Declare the options of ``turnout serve``, and convert them to those of a server."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from turnout.cli.command import argument, option, options, switch
from turnout.cli.groups import OUTCOME, SETTINGS, AlgorithmOption, LogOption, ThreadsOption
from turnout.core.checks import ConfigurationError, refuse

if TYPE_CHECKING:
    from turnout.deployment.server.options import Options
    from turnout.pieces.base.algorithm import Algorithm
    from turnout.protocol.pace import Pace

NETWORK, CLIENTS = "Network", "Clients"


@options
class ServeOptions(ThreadsOption, LogOption, AlgorithmOption):
    """Options of ``turnout serve``."""

    source: list[str] | None = argument("What to run.", "[FILE.toml|FILE.py:EXPERIMENT] [KEY=VALUE]...", None)
    folder: Path | None = option("Where everything is kept; one that holds the run goes on with it.", panel=OUTCOME)
    inputs: str | None = option(
        "Shape of an example, such as 64 or 1,28,28, or auto for that of the first client: no data are loaded then.",
        "N,...|auto",
        panel=SETTINGS,
    )
    classes: int | None = option("Number of classes, beside --inputs.", "C", panel=SETTINGS)
    test: str | None = option("Judge the model by these inputs and targets.", "FILE.py:FUNCTION", panel=SETTINGS)
    host: str = option("Address to listen at.", None, "127.0.0.1", panel=NETWORK)
    port: int = option("Port to listen at; 0 is any that is free.", None, 8470, panel=NETWORK)
    certificate: Path | None = option("TLS certificate.", "FILE", panel=NETWORK)
    key: Path | None = option("Its key.", "FILE", panel=NETWORK)
    client_ca: Path | None = option("Take only clients with a certificate that this one signed.", "FILE", panel=NETWORK)
    database: str | None = option("PostgreSQL in place of SQLite.", "URL", panel=OUTCOME)
    store: str | None = option(
        "Object store for models and reports, which clients reach directly; s3://BUCKET/PREFIX.", "URL", panel=OUTCOME
    )
    min_clients: int | None = option(
        "Clients who are there before training begins (default: a cohort).", "N", panel=CLIENTS
    )
    max_clients: int | None = option("Clients who may enrol.", "N", panel=CLIENTS)
    enrolment: str = option("Who may enrol: anyone, or with a one-time code.", "open|codes", "open", panel=CLIENTS)
    heartbeat: float = option("Between signs of life of clients at work.", "SECONDS", 10.0, panel=CLIENTS)
    task_deadline: float | None = option(
        "Greatest age of a task; 0 is any (default: 600, or the deadline of a round if that is longer).",
        "SECONDS", panel=CLIENTS,
    )  # fmt: skip
    evaluate_every: int | None = option(
        "Steps between evaluations (default: as the experiment says).", "K", panel=CLIENTS
    )
    evaluate_share: float | None = option(
        "Share of the clients who judge the model by test examples of their own at each evaluation.", "S", panel=CLIENTS
    )
    max_norm: str = option(
        "Greatest norm of an update; auto is 100 times that of the first model, or of ones.",
        "N|auto|none", "auto", panel=CLIENTS,
    )  # fmt: skip
    max_empty_steps: int = option(
        "Fail after K steps in a row without a usable report; 0 never does.", "K", 10, panel=OUTCOME
    )
    rate: float = option("Requests a second of one client; 0 is any.", "N", 50.0, panel=CLIENTS)
    connections: int = option("Open connections of all clients.", "N", 50_000, panel=NETWORK)
    per_address: int = option(
        "Open connections of one address; this machine's are not counted.", "N", 256, panel=NETWORK
    )
    enrolments_per_address: int = option(
        "New clients an hour of one address, and at once; 0 is any; this machine's are not counted.",
        "N", 1000, panel=NETWORK,
    )  # fmt: skip
    proxy_headers: str | None = option(
        "Addresses or networks of proxies whose X-Forwarded-For is believed.", "ADDRESS[,ADDRESS...]", panel=NETWORK
    )
    trusted_addresses: str | None = option(
        "Addresses or networks without these limits, such as of a machine that runs turnout swarm.",
        "ADDRESS[,ADDRESS...]", panel=NETWORK,
    )  # fmt: skip
    upload_rate: float = option(
        "A second that an upload brings in the long run, or it is cut.", "BYTES", 4096.0, panel=NETWORK
    )
    linger: float = option("Go on to answer when the run is over.", "SECONDS", 30.0, panel=NETWORK)
    keep_reports: int | None = option(
        "Keep the reports of N steps or a few more, from which a replay begins (default: of all).", "N", panel=OUTCOME
    )
    page: bool = switch("Serve a page, /join, in which a browser becomes a client.", "--page", panel=NETWORK)

    def words(self) -> tuple[str | None, list[str]]:
        """Return the file that says what to run, if one does, and settings, ``KEY=VALUE``.

        Raises:
            ConfigurationError: for options that are settings beside a Python file, which has all of them.
        """
        words = list(self.source or ())
        file = words.pop(0) if words and "=" not in words[0].split(":")[0] else None
        flags = {name: value for name in _IN_PYTHON if (value := getattr(self, name)) is not None}
        if file is not None and ".py:" in file and flags:
            name, value = next(iter(flags.items()))
            instead = _IN_PYTHON[name].format(value)
            option = name.replace("_", "-")
            raise ConfigurationError(f"{file} says all of the experiment: leave --{option} out, and write {instead}")
        flags.pop("algorithm", None)
        sections = {"inputs": "data.", "classes": "data."}
        return file, words + [f"{sections.get(name, '')}{name}={value}" for name, value in flags.items()]

    def server_options(self, algorithm: Algorithm, pace: Pace) -> Options:
        """Return the options of a server.

        Raises:
            ConfigurationError: for values that a server cannot have.
        """
        from turnout.deployment.server.leases import Leases
        from turnout.deployment.server.limits import Limits
        from turnout.deployment.server.options import Options
        from turnout.deployment.server.proxies import Networks, Proxies

        cohort = getattr(algorithm.selection, "cohort_size", 1)
        return Options(
            min_clients=cohort if self.min_clients is None else self.min_clients,
            leases=Leases(heartbeat=self.heartbeat, task_deadline=task_seconds(self.task_deadline, pace)),
            limits=Limits(self.connections, self.per_address, upload_rate=self.upload_rate),
            max_norm=norm_bound(self.max_norm),
            proxies=Proxies(self.proxy_headers.split(",") if self.proxy_headers else ()),
            trusted=Networks(self.trusted_addresses.split(",") if self.trusted_addresses else ()),
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
        )


_DECLARED = (
    "to.Experiment(to.data.declared(30, classes=3), ...) there, with the shape of an example of yours: the model of the file "
    "has one already. A model that is named, in FILE.toml or as KEY=VALUE, can take that of the first client"
)
_IN_PYTHON = {
    "algorithm": "to.Experiment(..., algorithm=to.{}(...)) there",
    "inputs": _DECLARED,
    "classes": _DECLARED,
    "evaluate_every": "to.Experiment(..., evaluate_every={}) there",
    "evaluate_share": "to.Experiment(..., evaluate_share={}) there",
}
"""Options that are settings, and what to write in place of them in a Python file."""

_AS_THEY_ARE = (
    "host", "port", "database", "store", "max_clients", "enrolment", "certificate", "key", "client_ca", "rate", "linger",
    "keep_reports", "max_empty_steps", "page", "enrolments_per_address",
)  # fmt: skip
"""Options that a server has under the same name."""


def norm_bound(text: str) -> float | Literal["auto"] | None:
    """Read ``--max-norm``.

    Raises:
        ConfigurationError: for what is neither a number > 0 nor ``auto`` or ``none``.
    """
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 < number < math.inf:
        raise refuse("max_norm", given=text, needed="a number > 0, or auto, or none for no bound")
    return number


def task_seconds(deadline: float | None, pace: Pace) -> float | None:
    """Return the greatest age of a task: 0 is any; by default 600 seconds, or as long as a round may take."""
    if deadline is None:
        return max(600.0, getattr(pace, "deadline", None) or 0.0)
    return deadline or None
