"""Assemble the commands to one application."""

from __future__ import annotations

from typing import Annotated

import typer

from turnout.cli import errors
from turnout.cli.command import examples
from turnout.cli.commands import (
    bench,
    clients,
    compare,
    conform,
    data,
    export,
    join,
    listing,
    replay,
    report,
    reproduce,
    run,
    serve,
    status,
    surveys,
    swarm,
    sweep,
)
from turnout.version import __version__

EPILOG = examples("""
turnout run --algorithm fedau --data digits
turnout compare fedau average_participating --seeds 3
turnout list algorithms
""")


def _application(name: str, text: str, epilog: str) -> typer.Typer:
    """Return an application without commands, which shows its help by default."""
    return typer.Typer(
        name=name,
        help=text,
        epilog=epilog,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )


app = _application("turnout", "Federated learning with partial participation of clients.", EPILOG)


def _version(asked_for: bool) -> None:
    if asked_for:
        typer.echo(f"turnout {__version__}")
        raise typer.Exit


@app.callback()
def turnout(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="TURNOUT_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Federated learning with partial participation of clients."""
    del version
    errors.debug(debug)
    if errors.several() and context.invoked_subcommand != "run":
        if errors.rank():
            raise typer.Exit(errors.USAGE)
        raise typer.BadParameter("torchrun is for turnout run; other commands start processes of their own: --jobs")


for command in (
    run.run, compare.compare, sweep.sweep, reproduce.reproduce, report.report, report.table, report.plot, export.export,
    bench.bench, serve.serve, join.join, swarm.swarm, conform.conform, status.status, clients.clients, surveys.evaluate,
    surveys.query, replay.replay,
):  # fmt: skip
    command.add_to(app)
listing.listing.add_to(app, "list")

_data = _application("data", "List and download data sets, and show how they are split over clients.", data.EPILOG)
data.catalogue.add_to(_data, "list")
data.fetch.add_to(_data)
data.show_data.add_to(_data, "show")
app.add_typer(_data)

_protocol = _application("protocol", "Tools for clients in other languages.", conform.VECTORS_EPILOG)
conform.vectors.add_to(_protocol)
app.add_typer(_protocol)
