"""``turnout join``: one client of a federation, with its own data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import RunFailed, guarded
from turnout.core.checks import ConfigurationError, known_name, positive
from turnout.core.display import printable

EPILOG = r"""[bold]Examples[/bold]

turnout join https://federation.example:8470 --data mine.py:examples --state ~/.turnout

turnout join http://127.0.0.1:8470 --data digits --client 7

turnout join https://federation.example --data mine.py:examples --share participation,scalars,updates --code CODE

turnout join https://federation.example --data mine.py:examples --log sent.jsonl

turnout join --inspect sent.jsonl"""


@guarded
def join(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="Where the server is.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION|NAME",
            help="A function that returns (inputs, targets), or two such pairs, the second for tests; or a data set.",
        ),
    ] = None,
    client: Annotated[
        int | None, typer.Option(metavar="K", help="Which client of a data set by name, to try things out.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where this client keeps what it has to remember.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the operator sees this client called.")] = None,
    code: Annotated[str | None, typer.Option(help="A one-time code, where the server asks for one.")] = None,
    share: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...",
            help=(
                "What the server may see: participation, scalars, gradients, updates, sums; evaluations, queries, which are "
                "declined if left out (default: what it asks for)."
            ),
        ),
    ] = None,
    functions: Annotated[
        list[str] | None,
        typer.Option(
            "--function",
            metavar="FILE.py:FUNCTION",
            help="A function of inputs and targets, with a number for each example, that queries may ask for; repeatable.",
        ),
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:EXPERIMENT", help="The experiment, where the server's is a file, too."),
    ] = None,
    ca: flags.Ca = None,
    certificate: flags.Certificate = None,
    key: flags.Key = None,
    patience: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up when the server has not answered for so long (default: never)."),
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, ...")] = "cpu",
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Append a line to a file for whatever leaves this client, before it is sent."
        ),
    ] = None,
    inspect: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show what a file of --log says, and do nothing else.")
    ] = None,
    logs: Annotated[str, typer.Option("--log-format", metavar="text|json", help="Form of messages.")] = "text",
    threads: flags.Threads = None,
) -> None:
    """Take part in a federation until it is over. Stopped or killed, the same command goes on where it was.

    The data stay here. No code comes from the server.
    """
    from turnout.cli.deployed import clients_experiment, functions_of, log_to_stderr, needs
    from turnout.cli.output import say
    from turnout.cli.sent import checked, inspected, logged
    from turnout.simulation.running import stops_on_signal

    needs("join", "httpx2")
    if inspect is not None:
        inspected(inspect, url, data, log)
        return
    url, data = checked(url, data, log)
    from turnout.deployment.client.join import Connection, Joined, ServerSilent, announcement
    from turnout.deployment.client.sent import Unlogged
    from turnout.deployment.client.session import Call, Client, Work
    from turnout.deployment.client.state import ClientFolder
    from turnout.deployment.client.worker import Computer, Worker
    from turnout.deployment.wire.privacy import KINDS, excess

    known_name("form of the log", logs, ("text", "json"))
    flags.use_threads(threads)
    connection = Connection(url.rstrip("/"), ca, certificate, key)
    if patience is not None:
        positive("patience", patience)
    with stops_on_signal() as stopped:
        try:
            told = announcement(connection, math.inf if patience is None else patience, stopped, say)
        except ServerSilent as silent:
            if stopped.is_set():
                raise KeyboardInterrupt from None
            raise RunFailed(str(silent)) from None
    mine, row = clients_experiment(told, data, experiment, client, device)
    kinds = KINDS if share is None else [kind.strip() for kind in share.split(",")]
    if more := excess(mine.algorithm, kinds):
        seen = "; ".join(f"{each.what} ({each.kind})" for each in more)
        raise ConfigurationError(f"--share: the server would also see {seen}: allow it, or stay away")
    folder = state or Path("clients") / (f"{told['run']}-{row}" if client is not None else str(told["run"]))
    kept = ClientFolder(folder)
    opting = mine.population.opting
    computer = Computer(mine, str(told["engine"]))
    worker = Worker(computer, row, allows=kinds, functions=functions_of(functions or []))
    taking = Client(kept, worker, name=name, code=code)
    taking.manners = taking.manners if opting is None else type(taking.manners)(comes_back=opting.comes_back)
    log_to_stderr(logs)
    say(f"taking part in run {told['run']} ({told['algorithm']}); what is remembered is in {folder}")

    def notice(action: object) -> None:
        if isinstance(action, Work):
            say("at work")
        elif isinstance(action, Call) and action.method == "PUT":
            say(f"sending report {taking.done + 1}")

    try:
        with logged(log, computer, connection.url) as sent, stops_on_signal() as stopped:
            outcome = Joined(taking, connection, stopped, notice, patience, sent).run()
    except (ServerSilent, Unlogged) as error:
        raise RunFailed(f"{error}. The same command goes on from {folder}") from None
    finally:
        kept.close()
    typer.echo(f"{printable(outcome)}: {taking.done} reports were taken")
