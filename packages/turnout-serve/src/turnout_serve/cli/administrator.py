"""Send administrative requests to a server from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import RenderableType

from turnout.cli.command import argument, option, options, switch
from turnout.cli.console import show
from turnout.cli.errors import RunFailed
from turnout.core.checks import ConfigurationError
from turnout_serve.cli.connection import ConnectionOptions

if TYPE_CHECKING:
    from turnout_serve.client.administrator import Administrator


@options
class AdministratorOptions(ConnectionOptions):
    """Options of administrative commands."""

    run: str = argument("The folder of a local server, or the address of a server.", "RUN|URL")
    token: Path | None = option(
        "The administrator's token (default: TURNOUT_ADMIN_TOKEN, or admin.token in the folder).", "FILE"
    )
    plain: bool = switch("Print the response as JSON.", "--json")

    def ask(
        self, request: Callable[[Administrator], dict[str, Any]], shown: Callable[[dict[str, Any]], RenderableType]
    ) -> None:
        """Send a request to the server, and print the response as JSON or as text.

        Args:
            request: function that sends the request.
            shown: formats a response as text.

        Raises:
            ConfigurationError: as `administrator` does.
            RunFailed: if the server does not respond, or rejects the request.
        """
        administrator = self.administrator()
        from turnout_serve.client.administrator import AdministrationFailed

        try:
            answer = request(administrator)
        except AdministrationFailed as failed:
            raise RunFailed(str(failed)) from None
        if self.plain:
            typer.echo(json.dumps(answer))
        else:
            show(shown(answer))

    def administrator(self) -> Administrator:
        """Return a client for the administrative interface of the server.

        The folder of a local server contains its address and the token. Otherwise the token is that of ``--token`` or the
        variable TURNOUT_ADMIN_TOKEN.

        Raises:
            ConfigurationError: if there is no such folder or address, or no token.
        """
        from turnout_serve.client.administrator import Administrator
        from turnout_serve.wire.administrator import ADDRESS_FILE, TOKEN_FILE, VARIABLE, read_file, read_token

        url, folder = self.run, Path(self.run)
        if not url.startswith(("http://", "https://")):
            if not (folder / ADDRESS_FILE).is_file():
                raise ConfigurationError(
                    f"{url} is neither the address of a server (https://HOST:PORT) nor the folder of one that has run: give "
                    "either"
                )
            url = (folder / ADDRESS_FILE).read_text(encoding="utf-8", errors="replace").strip()
        token = read_token(folder / TOKEN_FILE) if self.token is None else read_file(self.token)
        if token is None:
            raise ConfigurationError(
                f"no token of the administrator: set {VARIABLE}, or give --token FILE, such as the server's {TOKEN_FILE}"
            )
        return Administrator(self.connection(url, timeout=60.0), token)
