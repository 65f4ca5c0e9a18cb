"""``turnout evaluate``: have the clients of a server judge its model now."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import RunFailed, guarded

EPILOG = r"""[bold]Examples[/bold]

turnout evaluate runs/served

turnout evaluate runs/served --share 0.1

turnout evaluate runs/served --seconds 3600"""


@guarded
def evaluate(
    run: Annotated[
        str, typer.Argument(metavar="RUN|URL", help="The folder of a server on this machine, or where a server is.")
    ],
    share: flags.Share = 1.0,
    seconds: flags.Stays = None,
    token: flags.AdminToken = None,
    ca: flags.Ca = None,
    certificate: flags.Certificate = None,
    key: flags.Key = None,
    plain: Annotated[bool, typer.Option("--json", help="What the server answers, as JSON.")] = False,
) -> None:
    """Have clients judge the present model of a server by test examples of their own, and show the figures.

    Training goes on meanwhile. A run that is over is served again by its command, with --linger for as long as clients need.
    """
    from turnout.cli.administrator import administrator
    from turnout.cli.output import show
    from turnout.cli.surveys import outcome, shown

    who = administrator(run, token, ca, certificate, key)
    from turnout.deployment.client.administrator import AdministrationFailed

    try:
        found = outcome(who, {"phase": "evaluate", "share": share, "seconds": seconds})
    except AdministrationFailed as failed:
        raise RunFailed(str(failed)) from None
    if plain:
        typer.echo(json.dumps(found))
    else:
        show(shown(found))
