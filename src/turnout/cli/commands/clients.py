"""``turnout clients``: who takes part in a run, and who may."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from turnout.cli import flags
from turnout.cli.errors import RunFailed, guarded

EPILOG = r"""[bold]Examples[/bold]

turnout clients runs/served

turnout clients runs/served name 3 'Ward 4'

turnout clients runs/served ban 3 'sends noise'

turnout clients runs/served unban 3

turnout clients runs/served remove 3

turnout clients https://federation.example --token admin.token codes add 5

turnout clients runs/served codes withdraw all"""


@guarded
def clients(
    run: Annotated[
        str, typer.Argument(metavar="RUN|URL", help="The folder of a server on this machine, or where a server is.")
    ],
    action: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ACTION]",
            help="name K NAME, ban K REASON, unban K, remove K, codes, codes add N, codes withdraw CODE|all "
            "(default: list all clients).",
        ),
    ] = None,
    token: flags.AdminToken = None,
    ca: flags.Ca = None,
    certificate: flags.Certificate = None,
    key: flags.Key = None,
    plain: Annotated[bool, typer.Option("--json", help="What the server answers, as JSON.")] = False,
) -> None:
    """List the clients of a server, name, ban or remove them, and add and withdraw one-time codes, while a run goes on.

    A client that is banned is told the reason, and loses its task. One that is removed is forgotten: its token means nothing,
    and whoever has it may enrol as a new client.
    """
    from turnout.cli.administrator import administrator
    from turnout.cli.clients import listed, said, wanted
    from turnout.cli.output import show

    request = wanted(action or [])
    who = administrator(run, token, ca, certificate, key)
    from turnout.deployment.client.administrator import AdministrationFailed

    try:
        answer = listed(who) if request is None else who.ask(*request)
    except AdministrationFailed as failed:
        raise RunFailed(str(failed)) from None
    if plain:
        typer.echo(json.dumps(answer))
    else:
        show(said(answer))
