"""Add the commands of the workbench to the command line of turnout."""

from __future__ import annotations

import typer

from turnout.cli.command import application
from turnout.workbench.commands import advise, benchmark, reproduce, speed


def add_to(app: typer.Typer) -> None:
    """Add all commands to an application; the entry point of the workbench in the group ``turnout.commands``."""
    for command in (reproduce.reproduce, speed.speed, advise.advise):
        command.add_to(app)
    rows = application("benchmark", "Compare tuned rules under many kinds of participation.", benchmark.EPILOG)
    for command in (benchmark.run, benchmark.show, benchmark.check, benchmark.submit):
        command.add_to(rows)
    app.add_typer(rows)
