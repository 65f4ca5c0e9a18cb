"""``turnout join``: join a federation as a client with local data."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from turnout.cli.command import argument, command, option, options
from turnout.cli.console import say
from turnout.cli.errors import RunFailed
from turnout.cli.groups import ThreadsOption
from turnout.core.checks import ConfigurationError, positive
from turnout.core.display import printable
from turnout_serve.cli.connection import ConnectionOptions, LogOption

if TYPE_CHECKING:
    from turnout.experiment import Experiment
    from turnout_serve.client.computer import Computer
    from turnout_serve.client.join import Connection
    from turnout_serve.client.newcomer import Manners, Newcomer
    from turnout_serve.client.session import Client
    from turnout_serve.client.state import ClientState


@options
class JoinOptions(ThreadsOption, LogOption, ConnectionOptions):
    """Options of ``turnout join``."""

    url: str | None = argument("Address of the server.", "URL", None)
    data: str | None = option(
        "A function that returns (inputs, targets), or two such pairs, the second for tests; or a data set.",
        "FILE.py:FUNCTION|NAME",
    )
    client: int | None = option("Client number in a data set by name, for testing.", "K")
    state: Path | None = option("Folder of this client's state (default: clients/RUN).", "FOLDER")
    name: str | None = option("Name of this client for the operator.")
    code: str | None = option("One-time code, if the server requires one.")
    share: str | None = option(
        "Kinds of data that may be sent: participation, scalars, gradients, updates, sums, evaluations, queries, and repeats "
        "of answers to the same question (default: all but repeats; repeats as the only kind permits all).",
        "KIND,...",
    )
    functions: list[str] | None = option(
        "A function of inputs and targets that returns a number for each example, for queries; repeatable.",
        "FILE.py:FUNCTION", None, "--function",
    )  # fmt: skip
    stores: list[str] | None = option(
        "Trusted host of an object store for models and reports, if the server links to one; repeatable. Links to other "
        "hosts are not followed.",
        "HOST", None, "--store-host",
    )  # fmt: skip
    experiment: str | None = option("The experiment, if that of the server is a Python file.", "FILE.py:EXPERIMENT")
    patience: float | None = option(
        "Stop after this time without a response from the server (default: never).", "SECONDS"
    )
    device: str = option("Device: cpu, cuda, cuda:1, ...", "NAME", "cpu")
    log: Path | None = option("Log all messages to the server in this file before they are sent.", "FILE")
    inspect: Path | None = option("Show a file written by --log, and exit.", "FILE")

    def check(self) -> tuple[str, str]:
        """Return the address of the server and the data of the client, after checks.

        Raises:
            ConfigurationError: if one is missing, or ``--log`` is a format in place of a file.
        """
        if self.url is None:
            raise ConfigurationError(
                "join: needed the URL of a server, https://HOST:PORT; or --inspect FILE to show a log"
            )
        if self.data is None:
            raise ConfigurationError(
                "join: needed the data of this client, --data FILE.py:FUNCTION or the name of a data set"
            )
        if self.log is not None and str(self.log) in ("text", "json"):
            raise ConfigurationError(
                f"--log takes a file, got {self.log}: for the form of messages write --log-format {self.log}"
            )
        return self.url, self.data

    def folder(self, run: Mapping[str, Any]) -> Path:
        """Return the folder of the client's state in a run."""
        name = str(run["run"]) if self.client is None else f"{run['run']}-{self.client}"
        return self.state or Path("clients") / name

    def newcomer(self, state: ClientState, data: Mapping[str, Any] | None, manners: Manners | None = None) -> Newcomer:
        """Return the client before it has a model."""
        from turnout_serve.client.newcomer import Newcomer

        return Newcomer(state, name=self.name, code=self.code, data=data, manners=manners)


@command(JoinOptions)
def join(options: JoinOptions) -> None:
    """Join a federation until it ends. After a stop or a crash, the same command resumes.

    The data stay on this machine, and no code is loaded from the server.

    Examples:
        turnout join https://federation.example:8470 --data mine.py:examples --state ~/.turnout
        turnout join http://127.0.0.1:8470 --data digits --client 7
        turnout join https://federation.example --data mine.py:examples --share participation,scalars,updates --code CODE
        turnout join https://federation.example --data mine.py:examples --log sent.jsonl
        turnout join --inspect sent.jsonl
    """
    if options.inspect is not None:
        from turnout_serve.cli.sent import inspect

        if options.url is not None or options.data is not None or options.log is not None:
            raise ConfigurationError("--inspect shows a file and joins no server: leave out URL, --data and --log")
        inspect(options.inspect)
        return
    url, data = options.check()
    options.write_log()
    options.use_threads()
    connection = options.connection(url)
    from turnout_serve.cli.joining import clients_experiment, functions_of
    from turnout_serve.client.computer import Computer
    from turnout_serve.client.newcomer import Manners
    from turnout_serve.client.session import Client
    from turnout_serve.client.state_folder import StateFolder
    from turnout_serve.client.worker import Worker
    from turnout_serve.wire.data_shape import DataShape

    run = announced_run(connection, options.patience)
    if run["input_shape"] is None:
        run = introduced(run, connection, data, options)
    experiment, row = clients_experiment(run, data, options.experiment, options.client, options.device)
    kinds = _allowed(experiment, options.share)
    folder = options.folder(run)
    with closing(StateFolder(folder)) as state:
        state.check_algorithm(experiment.algorithm)
        computer = Computer(experiment, str(run["engine"]))
        worker = Worker(computer, row, allows=kinds, functions=functions_of(options.functions or []))
        shape = None if run.get("data") is None else DataShape.of(experiment.data).settings()
        opting = experiment.population.opting
        manners = Manners(comes_back=opting is None or opting.comes_back, stores=frozenset(options.stores or ()))
        client = Client(options.newcomer(state, shape, manners), worker)
        say(f"taking part in run {run['run']} ({run['algorithm']}); what is remembered is in {folder}")
        outcome = _exchanged(client, connection, options, folder, computer)
    typer.echo(f"{printable(outcome)}: {client.done} reports were taken")


def announced_run(connection: Connection, patience: float | None) -> dict[str, Any]:
    """Fetch the description of the run, and wait until the server responds."""
    from turnout.simulation.running import stops_on_signal
    from turnout_serve.client.join import ServerSilent, announcement

    if patience is not None:
        positive("patience", patience)
    with stops_on_signal() as stopped:
        try:
            return announcement(connection, math.inf if patience is None else patience, stopped, say)
        except ServerSilent as silent:
            if stopped.is_set():
                raise KeyboardInterrupt from None
            raise RunFailed(str(silent)) from None


def introduced(run: dict[str, Any], connection: Connection, data: str, options: JoinOptions) -> dict[str, Any]:
    """Send the shape of the data to a server that waits for it, and return its description of the run afterwards."""
    from turnout_serve.cli.joining import shape_of
    from turnout_serve.client.state_folder import StateFolder

    shape = shape_of(run, data)
    say(f"the server waits for the first client: it is told that there are {shape}")
    folder = options.folder(run)
    with closing(StateFolder(folder)) as state:
        if _exchanged(options.newcomer(state, shape.settings()), connection, options, folder, None) == "stopped":
            raise KeyboardInterrupt
    while (known := announced_run(connection, options.patience))["input_shape"] is None:
        time.sleep(0.2)  # until the server is ready
    return known


def _allowed(experiment: Experiment, share: str | None) -> Sequence[str]:
    """Return the kinds of data that may be sent to the server; raise an error if the algorithm needs others."""
    from turnout_serve.wire.privacy import BY_DEFAULT, KINDS, excess

    kinds = BY_DEFAULT if share is None else [kind.strip() for kind in share.split(",")]
    kinds = KINDS if list(kinds) == ["repeats"] else kinds
    if more := excess(experiment.algorithm, kinds):
        seen = "; ".join(f"{figure.what} ({figure.kind})" for figure in more)
        raise ConfigurationError(f"--share: the server would also see {seen}: allow it, or stay away")
    return kinds


def _exchanged(
    client: Client | Newcomer, connection: Connection, options: JoinOptions, folder: Path, computer: Computer | None
) -> str:
    """Exchange messages with the server until the client has nothing more to do, and return the reason of the end."""
    from turnout.simulation.running import stops_on_signal
    from turnout_serve.client.calls import Call, Work
    from turnout_serve.client.join import Joined, ServerSilent
    from turnout_serve.client.sent import SentLog, Unlogged

    def notice(action: object) -> None:
        if isinstance(action, Work):
            say("working")
        elif isinstance(action, Call) and action.method == "PUT" and client.state.pending is not None:
            task = client.state.pending.task  # tasks have numbers, while the count of reports skips dropped ones
            say(f"sending the report on task {task.task} ({task.phase}, version {task.version})")

    log = nullcontext() if options.log is None else closing(SentLog(options.log, computer, connection.url))
    try:
        with log as kept, stops_on_signal() as stopped:
            sent = (lambda *_: None) if kept is None else kept.write
            return Joined(client, connection, stopped, notice, options.patience, sent).run()
    except (ServerSilent, Unlogged) as error:
        raise RunFailed(f"{error}. The same command goes on from {folder}") from None
