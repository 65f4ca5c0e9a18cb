"""Assemble the commands to one application."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from turnout.cli import errors
from turnout.cli.command import application, examples
from turnout.cli.commands import compare, data, listing, model, report, run, sweep
from turnout.cli.console import say_by
from turnout.version import __version__

EPILOG = examples(
    "turnout run --algorithm fedau --data digits",
    "turnout compare fedau average_participating --seeds 3",
    "turnout list algorithms",
)
GROUP = "turnout.commands"
"""The group of entry points of the modules that add further commands, each with a function ``add_to(app)``."""

OF_SERVE = ("serve", "join", "swarm", "conform", "status", "clients", "evaluate", "query", "replay", "protocol")
"""Commands of the distribution turnout-serve, which an installation without it is asked for."""


class _Commands(TyperGroup):
    """Commands that say what to install where a command of turnout-serve is missing."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in OF_SERVE and args[0] not in self.commands:
            ctx.fail(
                f"turnout {args[0]} belongs to the distribution turnout-serve, which is not installed: "
                "pip install ./packages/turnout-serve in a clone of turnout"
            )
        return super().resolve_command(ctx, args)


app = application("turnout", "Federated learning with partial participation of clients.", EPILOG, _Commands)


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
    say_by(None)
    if errors.several() and context.invoked_subcommand != "run":
        if errors.rank():
            raise typer.Exit(errors.USAGE)
        raise typer.BadParameter("torchrun is for turnout run; other commands start processes of their own: --jobs")


for command in (
    run.run, compare.compare, sweep.sweep, report.report, report.table, report.plot, model.export, model.predict,
):  # fmt: skip
    command.add_to(app)
listing.listing.add_to(app, "list")

_data = application("data", "List and download data sets, and show how they are split over clients.", data.EPILOG)
data.catalog.add_to(_data, "list")
data.fetch.add_to(_data)
data.show_data.add_to(_data, "show")
app.add_typer(_data)

for _point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
    _point.load().add_to(app)
