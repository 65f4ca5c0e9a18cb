"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from turnout.cli import errors
from turnout.cli.commands import (
    bench,
    clients,
    compare,
    conform,
    data,
    evaluate,
    export,
    join,
    listing,
    plot,
    protocol,
    query,
    replay,
    report,
    reproduce,
    run,
    serve,
    status,
    swarm,
    sweep,
    table,
)
from turnout.version import __version__

EPILOG = r"""[bold]Begin with[/bold]

turnout run --algorithm fedau --data digits

turnout compare fedau average_participating --seeds 3

turnout list algorithms"""

app = typer.Typer(
    name="turnout",
    help="Federated learning for clients who come and go.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
_data = typer.Typer(
    name="data",
    help="List data sets, fetch them, look at who would hold what.",
    epilog=data.EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_protocol = typer.Typer(
    name="protocol",
    help="What the author of a client in another language needs.",
    epilog=protocol.EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnout {__version__}")
        raise typer.Exit


@app.callback()
def turnout(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="TURNOUT_DEBUG", help="Show where an error comes from.")
    ] = False,
) -> None:
    """Federated learning for clients who come and go."""
    del version
    errors.debug(debug)
    if errors.several() and context.invoked_subcommand != "run":
        if errors.rank():
            raise typer.Exit(errors.USAGE)
        raise typer.BadParameter("torchrun is for turnout run; other commands start processes of their own: --jobs")


app.command(epilog=run.EPILOG)(run.run)
app.command(epilog=compare.EPILOG)(compare.compare)
app.command(epilog=sweep.EPILOG)(sweep.sweep)
app.command(epilog=reproduce.EPILOG)(reproduce.reproduce)
app.command(epilog=report.EPILOG)(report.report)
app.command(epilog=table.EPILOG)(table.table)
app.command(epilog=plot.EPILOG)(plot.plot)
app.command(epilog=export.EPILOG)(export.export)
app.command(epilog=bench.EPILOG)(bench.bench)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=join.EPILOG)(join.join)
app.command(epilog=swarm.EPILOG)(swarm.swarm)
app.command(epilog=conform.EPILOG)(conform.conform)
app.command(epilog=status.EPILOG)(status.status)
app.command(epilog=clients.EPILOG)(clients.clients)
app.command(epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command(epilog=query.EPILOG)(query.query)
app.command(epilog=replay.EPILOG)(replay.replay)
app.command("list", epilog=listing.EPILOG)(listing.listing)
_data.command("list", epilog=data.LIST_EPILOG)(data.catalogue)
_data.command(epilog=data.FETCH_EPILOG)(data.fetch)
_data.command("show", epilog=data.SHOW_EPILOG)(data.show_data)
app.add_typer(_data)
_protocol.command(epilog=protocol.VECTORS_EPILOG)(protocol.vectors)
app.add_typer(_protocol)
