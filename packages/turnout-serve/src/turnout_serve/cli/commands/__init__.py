"""Add the commands of the network to the command line of turnout."""

from __future__ import annotations

import typer

from turnout.cli.command import application
from turnout_serve.cli.commands import clients, conform, join, replay, serve, status, surveys, swarm


def add_to(app: typer.Typer) -> None:
    """Add all commands to an application; the entry point of turnout-serve in the group ``turnout.commands``."""
    for command in (
        serve.serve, join.join, swarm.swarm, conform.conform, status.status, clients.clients, surveys.evaluate,
        surveys.query, replay.replay,
    ):  # fmt: skip
        command.add_to(app)
    protocol = application("protocol", "Tools for clients in other languages.", conform.vectors.epilog)
    conform.vectors.add_to(protocol)
    app.add_typer(protocol)
