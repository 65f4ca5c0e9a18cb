"""``turnout serve``: a federation of real clients, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import RunFailed, guarded
from turnout.core.checks import CheckpointError, Diverged, known_name

EPILOG = r"""[bold]Examples[/bold]

turnout serve run.toml --min-clients 10

turnout serve algorithm.name=fedau data.name=digits data.num_clients=20 rounds=50

turnout serve run.toml --evaluate-every 10 --evaluate-share 0.2

turnout serve algorithm.name=fedau model.name=mlp rounds=50 --inputs 64 --classes 10

turnout serve own.py:EXPERIMENT --folder runs/own --host 0.0.0.0 --certificate cert.pem --key key.pem --enrolment codes

turnout serve algorithm.name=fedau data.name=digits --page --host 0.0.0.0

turnout serve run.toml --folder runs/served --database postgresql://turnout@localhost/turnout"""

NETWORK, CLIENTS = "Network", "Clients"


@guarded
def serve(
    source: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE.toml|FILE.py:EXPERIMENT] [KEY=VALUE]...", help="What to run."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where everything is kept; one that holds the run goes on with it.", rich_help_panel=flags.OUTCOME
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="N,...",
            help="Shape of an example, such as 64 or 1,28,28: data are not loaded then.",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(metavar="C", help="Number of classes, beside --inputs.", rich_help_panel=flags.SETTINGS),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="Judge the model by these inputs and targets.",
            rich_help_panel=flags.SETTINGS,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.", rich_help_panel=NETWORK)] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 is any that is free.", rich_help_panel=NETWORK)
    ] = 8470,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS certificate.", rich_help_panel=NETWORK)
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.", rich_help_panel=NETWORK)] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Take only clients with a certificate that this one signed.", rich_help_panel=NETWORK
        ),
    ] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="PostgreSQL in place of SQLite.", rich_help_panel=flags.OUTCOME)
    ] = None,
    min_clients: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Clients who are there before training begins (default: a cohort).",
            rich_help_panel=CLIENTS,
        ),
    ] = None,
    max_clients: Annotated[
        int | None, typer.Option(metavar="N", help="Clients who may enrol.", rich_help_panel=CLIENTS)
    ] = None,
    enrolment: Annotated[
        str,
        typer.Option(
            metavar="open|codes", help="Who may enrol: anyone, or with a one-time code.", rich_help_panel=CLIENTS
        ),
    ] = "open",
    heartbeat: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Between signs of life of clients at work.", rich_help_panel=CLIENTS),
    ] = 10.0,
    task_deadline: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Greatest age of a task; 0 is any (default: 600, or the deadline of a round if that is longer).",
            rich_help_panel=CLIENTS,
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            metavar="K", help="Steps between evaluations (default: as the experiment says).", rich_help_panel=CLIENTS
        ),
    ] = None,
    evaluate_share: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Share of the clients who judge the model by test examples of their own at each evaluation.",
            rich_help_panel=CLIENTS,
        ),
    ] = None,
    max_norm: Annotated[
        str,
        typer.Option(
            metavar="N|auto|none",
            help="Greatest norm of an update; auto is 100 times that of the first model, or of ones.",
            rich_help_panel=CLIENTS,
        ),
    ] = "auto",
    max_empty_steps: Annotated[
        int,
        typer.Option(
            metavar="K",
            help="Fail after K steps in a row without a usable report; 0 never does.",
            rich_help_panel=flags.OUTCOME,
        ),
    ] = 10,
    rate: Annotated[
        float, typer.Option(metavar="N", help="Requests a second of one client; 0 is any.", rich_help_panel=CLIENTS)
    ] = 50.0,
    connections: Annotated[
        int, typer.Option(metavar="N", help="Open connections of all clients.", rich_help_panel=NETWORK)
    ] = 50_000,
    per_address: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Open connections of one address; this machine's are not counted.",
            rich_help_panel=NETWORK,
        ),
    ] = 256,
    enrolments_per_address: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="New clients an hour of one address, and at once; 0 is any; this machine's are not counted.",
            rich_help_panel=NETWORK,
        ),
    ] = 1000,
    proxy_headers: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS[,ADDRESS...]",
            help="Addresses or networks of proxies whose X-Forwarded-For is believed.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    upload_rate: Annotated[
        float,
        typer.Option(
            metavar="BYTES",
            help="A second that an upload brings in the long run, or it is cut.",
            rich_help_panel=NETWORK,
        ),
    ] = 4096.0,
    linger: Annotated[
        float, typer.Option(metavar="SECONDS", help="Go on to answer when the run is over.", rich_help_panel=NETWORK)
    ] = 30.0,
    keep_reports: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Keep the reports of N steps or a few more, from which a replay begins (default: of all).",
            rich_help_panel=flags.OUTCOME,
        ),
    ] = None,
    page: Annotated[
        bool,
        typer.Option(
            "--page", help="Serve a page, /join, in which a browser becomes a client.", rich_help_panel=NETWORK
        ),
    ] = False,
    logs: Annotated[str, typer.Option("--log-format", metavar="text|json", help="Form of the log.")] = "text",
    threads: flags.Threads = None,
) -> None:
    """Train with real clients, who enrol, come and go. Stopped or killed, the same command goes on where it was."""
    from turnout.cli.deployed import announced, experiment_of, log_to_stderr, needs, with_test
    from turnout.cli.serve import introduce, norm_bound, note, task_seconds

    needs("serve", "starlette", "uvicorn", "sqlalchemy", "httptools")
    from turnout.deployment.server.leases import Leases
    from turnout.deployment.server.limits import Limits
    from turnout.deployment.server.process import Options, Server
    from turnout.deployment.server.proxies import Proxies

    known_name("enrolment", enrolment, ("open", "codes"))
    known_name("form of the log", logs, ("text", "json"))
    flags.use_threads(threads)
    given = list(source or ())
    first = given.pop(0) if given and "=" not in given[0].split(":")[0] else None
    options = {
        "data.inputs": inputs, "data.classes": classes, "evaluate_every": evaluate_every, "evaluate_share": evaluate_share
    }  # fmt: skip
    given += [f"{name}={value}" for name, value in options.items() if value is not None]
    experiment, settings = experiment_of(first, given, loads=False)
    experiment = with_test(experiment, test)
    least = getattr(experiment.algorithm.selection, "cohort_size", 1) if min_clients is None else min_clients
    target = folder or Path(f"runs/{experiment.algorithm.name}-{experiment.data.name}-served")
    leases = Leases(heartbeat=heartbeat, task_deadline=task_seconds(task_deadline, experiment.pace))
    options = Options(
        host, port, database, least, max_clients, enrolment, leases, certificate, key, client_ca, rate, linger, keep_reports,
        Limits(connections, per_address, upload_rate=upload_rate), norm_bound(max_norm), max_empty_steps, page=page,
        enrolments_per_address=enrolments_per_address, proxies=Proxies(proxy_headers.split(",") if proxy_headers else ()),
    )  # fmt: skip
    try:
        server = Server(experiment, target, None if settings is None else announced(settings), options)
    except OSError as error:
        raise CheckpointError(
            f"{target} cannot be written: {error}. Free some space, or give another --folder"
        ) from error
    note(target, first, experiment, settings)
    introduce(server, target)
    log_to_stderr(logs)
    try:
        outcome = server.run(
            lambda url: typer.echo(f"serving at {url}" + (f"; browsers take part at {url}/join" if page else ""))
        )
    except (CheckpointError, Diverged) as error:
        raise RunFailed(str(error)) from error
    typer.echo(f"{outcome} after {server.driver.version} of {experiment.rounds} steps; all of it is in {target}")
