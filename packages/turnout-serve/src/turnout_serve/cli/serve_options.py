"""Options of ``turnout serve``, and their conversion to those of a server."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from turnout.cli.command import argument, option, options, switch
from turnout.cli.groups import OUTCOME, SETTINGS, AlgorithmOption, ThreadsOption
from turnout.core.checks import ConfigurationError, refuse
from turnout_serve.cli.connection import LogOption

if TYPE_CHECKING:
    from turnout.base.algorithm import Algorithm
    from turnout.protocol.pace import Pace
    from turnout_serve.server.options import Options

NETWORK, CLIENTS = "Network", "Clients"


@options
class ServeOptions(ThreadsOption, LogOption, AlgorithmOption):
    """Options of ``turnout serve``."""

    source: list[str] | None = argument("The experiment.", "[FILE.toml|FILE.py:EXPERIMENT] [KEY=VALUE]...", None)
    folder: Path | None = option("Folder of the run; an existing run is resumed.", panel=OUTCOME)
    inputs: str | None = option(
        "Shape of an example, such as 64 or 1,28,28, or auto for that of the first client; the server then loads no data.",
        "N,...|auto",
        panel=SETTINGS,
    )
    classes: int | None = option("Number of classes, beside --inputs.", "C", panel=SETTINGS)
    test: str | None = option("Test inputs and targets of the server.", "FILE.py:FUNCTION", panel=SETTINGS)
    host: str = option("Address to listen on.", None, "127.0.0.1", panel=NETWORK)
    port: int = option("Port to listen on; 0 chooses a free one.", None, 8470, panel=NETWORK)
    public_url: str | None = option(
        "Address at which clients and administrators reach the server, if it differs from --host and --port.", "URL",
        panel=NETWORK,
    )  # fmt: skip
    certificate: Path | None = option("TLS certificate; reloaded on SIGHUP.", "FILE", panel=NETWORK)
    key: Path | None = option("Private key of the certificate.", "FILE", panel=NETWORK)
    client_ca: Path | None = option("Accept only clients whose certificate this CA signed.", "FILE", panel=NETWORK)
    database: str | None = option("PostgreSQL database, instead of SQLite.", "URL", panel=OUTCOME)
    store: str | None = option(
        "Object store for models and reports, which clients access directly: s3://BUCKET/PREFIX.", "URL", panel=OUTCOME
    )
    min_clients: int | None = option(
        "Minimum number of connected clients for training to start and to continue (default: a cohort, or as many as a "
        "secure sum needs).",
        "N",
        panel=CLIENTS,
    )
    max_clients: int | None = option("Maximum number of enrolled clients.", "N", panel=CLIENTS)
    enrollment: str = option("Who may enroll: anyone, or clients with codes.", "open|codes", "open", panel=CLIENTS)
    heartbeat: float = option("Interval of the heartbeats of working clients.", "SECONDS", 10.0, panel=CLIENTS)
    task_deadline: float | None = option(
        "Time limit of a task; 0 is none (default: 600, or the deadline of a round if that is longer).",
        "SECONDS", panel=CLIENTS,
    )  # fmt: skip
    evaluate_every: int | None = option(
        "Steps between evaluations (default: that of the experiment).", "K", panel=CLIENTS
    )
    evaluate_share: float | None = option(
        "Fraction of clients that evaluate the model on their own test examples at each evaluation.", "S", panel=CLIENTS
    )
    max_norm: str = option(
        "Maximum norm of an update; auto is 10 times the usual norm, and at most 100 times that of the first model.",
        "N|auto|none", "auto", panel=CLIENTS,
    )  # fmt: skip
    max_examples: int | None = option(
        "Maximum number of examples of a client; reports of more are refused (default: no limit).", "N", panel=CLIENTS
    )
    min_answers: int = option(
        "Minimum number of clients that answer an evaluation or query before its figures are published.",
        "N",
        3,
        panel=CLIENTS,
    )
    max_empty_steps: int = option(
        "Fail after K consecutive steps without a usable report; 0 disables this.", "K", 10, panel=OUTCOME
    )
    rate: float = option("Maximum requests per second of a client; 0 is unlimited.", "N", 50.0, panel=CLIENTS)
    connections: int = option("Maximum number of open connections.", "N", 50_000, panel=NETWORK)
    per_address: int = option(
        "Maximum number of open connections per address, except local ones.", "N", 256, panel=NETWORK
    )
    enrollments_per_address: int = option(
        "Maximum number of enrollments per hour and address, except local ones; 0 is unlimited.",
        "N", 1000, panel=NETWORK,
    )  # fmt: skip
    proxy_headers: str | None = option(
        "Addresses or networks of proxies whose X-Forwarded-For is trusted.", "ADDRESS[,ADDRESS...]", panel=NETWORK
    )
    trusted_addresses: str | None = option(
        "Addresses or networks without the limits per address, such as that of a machine that runs turnout swarm.",
        "ADDRESS[,ADDRESS...]", panel=NETWORK,
    )  # fmt: skip
    upload_rate: float = option(
        "Minimum bytes per second of an upload, on average; slower ones are aborted.", "BYTES", 4096.0, panel=NETWORK
    )
    linger: float = option("Time to answer requests after the end of the run.", "SECONDS", 30.0, panel=NETWORK)
    keep_reports: int | None = option(
        "Keep the reports of about the last N steps, for replays (default: all steps).", "N", panel=OUTCOME
    )
    page: bool = switch("Serve a page, /join, on which a browser becomes a client.", "--page", panel=NETWORK)
    public_status: bool = switch(
        "Show the status, metrics and page to anyone, instead of only to the administrator.",
        "--public-status",
        panel=NETWORK,
    )

    def words(self) -> tuple[str | None, list[str]]:
        """Return the file of the experiment, if one is given, and settings, ``KEY=VALUE``.

        Raises:
            ConfigurationError: if options are settings beside a Python file, which has all of them.
        """
        words = list(self.source or ())
        file = words.pop(0) if words and "=" not in words[0].split(":")[0] else None
        flags = {name: value for name in _IN_PYTHON if (value := getattr(self, name)) is not None}
        if file is not None and ".py:" in file and flags:
            name, value = next(iter(flags.items()))
            instead = _IN_PYTHON[name].format(value)
            option = name.replace("_", "-")
            raise ConfigurationError(
                f"{file} describes the entire experiment: leave --{option} out, and write {instead}"
            )
        flags.pop("algorithm", None)
        sections = {"inputs": "data.", "classes": "data."}
        return file, words + [f"{sections.get(name, '')}{name}={value}" for name, value in flags.items()]

    def server_options(self, algorithm: Algorithm, pace: Pace) -> Options:
        """Return the options of a server.

        Raises:
            ConfigurationError: if values are invalid.
        """
        from turnout_serve.server.http.limits import Limits
        from turnout_serve.server.http.proxies import Networks, Proxies
        from turnout_serve.server.leases import Leases
        from turnout_serve.server.options import Options

        masking = getattr(algorithm.aggregation, "masking", None)
        cohort = getattr(algorithm.selection, "cohort_size", 1 if masking is None else masking.min_clients)
        same = {each.name: getattr(self, each.name) for each in fields(Options) if hasattr(self, each.name)}
        return Options(**same | {
            "min_clients": (cohort if isinstance(cohort, int) else 1) if self.min_clients is None else self.min_clients,
            "leases": Leases(heartbeat=self.heartbeat, task_deadline=task_seconds(self.task_deadline, pace)),
            "limits": Limits(self.connections, self.per_address, upload_rate=self.upload_rate),
            "max_norm": norm_bound(self.max_norm),
            "proxies": Proxies(self.proxy_headers.split(",") if self.proxy_headers else ()),
            "trusted": Networks(self.trusted_addresses.split(",") if self.trusted_addresses else ()),
        })  # fmt: skip


_DECLARED = (
    "to.Experiment(to.data.declared(30, classes=3), ...) there, with the shape of your examples: the model of the file has "
    "a fixed shape. Only a model that is named, in FILE.toml or as KEY=VALUE, can have the shape of the first client"
)
_IN_PYTHON = {
    "algorithm": "to.Experiment(..., algorithm=to.{}(...)) there",
    "inputs": _DECLARED,
    "classes": _DECLARED,
    "evaluate_every": "to.Experiment(..., evaluate_every={}) there",
    "evaluate_share": "to.Experiment(..., evaluate_share={}) there",
}
"""Options that are settings, and the replacement for each in a Python file."""


def norm_bound(text: str) -> float | Literal["auto"] | None:
    """Read ``--max-norm``.

    Raises:
        ConfigurationError: if the value is neither a number > 0, ``auto`` nor ``none``.
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
    """Return the time limit of a task; 0 is none; by default 600 seconds, or the deadline of a round if that is longer."""
    if deadline is None:
        return max(600.0, getattr(pace, "deadline", None) or 0.0)
    return deadline or None
