"""Ask a server as its administrator, on the command line: which server, and with which token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import RenderableType

from turnout.cli.errors import RunFailed
from turnout.cli.groups import AdministratorOptions
from turnout.cli.output import show
from turnout.core.checks import ConfigurationError

if TYPE_CHECKING:
    from turnout.deployment.client.administrator import Administrator


def ask(
    options: AdministratorOptions,
    request: Callable[[Administrator], dict[str, Any]],
    shown: Callable[[dict[str, Any]], RenderableType],
) -> None:
    """Ask a server, and write what it answers: as JSON, or for people.

    Args:
        options: which server, and with which token.
        request: asks it.
        shown: an answer, for people.

    Raises:
        ConfigurationError: as `administrator` does.
        RunFailed: where the server does not answer, or refuses.
    """
    who = administrator(options)
    from turnout.deployment.client.administrator import AdministrationFailed

    try:
        answer = request(who)
    except AdministrationFailed as failed:
        raise RunFailed(str(failed)) from None
    if options.plain:
        typer.echo(json.dumps(answer))
    else:
        show(shown(answer))


def administrator(options: AdministratorOptions) -> Administrator:
    """Return who administers a server.

    The folder of a server on this machine says where it listens and holds the token. Without one, the token is that of
    ``--token`` or the variable TURNOUT_ADMIN_TOKEN.

    Raises:
        ConfigurationError: where there is no such folder or address, or no token.
    """
    from turnout.cli.deployed import needs

    needs("join", "httpx2")
    from turnout.deployment.client.administrator import Administrator
    from turnout.deployment.client.join import Connection
    from turnout.deployment.wire.administrator import ADDRESS_FILE, TOKEN_FILE, VARIABLE, read_file, read_token

    run, token = options.run, options.token
    url, folder = run.rstrip("/"), Path(run)
    if not run.startswith(("http://", "https://")):
        if not (folder / ADDRESS_FILE).is_file():
            raise ConfigurationError(
                f"{run} is neither the address of a server (https://HOST:PORT) nor the folder of one that has run: give "
                "either"
            )
        url = (folder / ADDRESS_FILE).read_text(encoding="utf-8", errors="replace").strip()
    found = read_token(folder / TOKEN_FILE) if token is None else read_file(token)
    if found is None:
        raise ConfigurationError(
            f"no token of the administrator: set {VARIABLE}, or give --token FILE, such as the server's {TOKEN_FILE}"
        )
    return Administrator(Connection(url, options.ca, options.certificate, options.key, timeout=60.0), found)
