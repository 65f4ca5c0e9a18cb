"""``turnout clients``: who takes part in a run, and who may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from turnout.cli.errors import guarded
from turnout.cli.groups import AdministratorOptions, takes

EPILOG = r"""[bold]Examples[/bold]

turnout clients runs/served

turnout clients runs/served name 3 'Ward 4'

turnout clients runs/served ban 3 'sends noise'

turnout clients runs/served unban 3

turnout clients runs/served remove 3

turnout clients https://federation.example --token admin.token codes add 5

turnout clients runs/served codes withdraw all"""


@dataclass(frozen=True, kw_only=True)
class ClientsOptions(AdministratorOptions):
    """Options of ``turnout clients``."""

    action: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ACTION]",
            help="name K NAME, ban K REASON, unban K, remove K, codes, codes add N, codes withdraw CODE|all "
            "(default: list all clients).",
        ),
    ] = None


@guarded
@takes(ClientsOptions)
def clients(options: ClientsOptions) -> None:
    """List the clients of a server, name, ban or remove them, and add and withdraw one-time codes, while a run goes on.

    A client that is banned is told the reason, and loses its task. One that is removed is forgotten: its token means nothing,
    and whoever has it may enrol as a new client.
    """
    from turnout.cli.administrator import ask
    from turnout.cli.clients import listed, said, wanted

    request = wanted(options.action or [])
    ask(options, lambda who: listed(who) if request is None else who.ask(*request), said)
