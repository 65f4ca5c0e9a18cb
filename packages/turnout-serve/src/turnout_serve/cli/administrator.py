"""Send administrative requests to a server from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import RenderableType

from turnout.cli.command import argument, option, options, switch
from turnout.cli.console import show
from turnout.cli.errors import RunFailed
from turnout.core.checks import ConfigurationError
from turnout.core.display import printable
from turnout_serve.cli.connection import ConnectionOptions

_LONGEST = 2048  # bytes of a file with an address

if TYPE_CHECKING:
    from turnout_serve.client.administrator import Administrator
    from turnout_serve.client.connection import Connection


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

        Raises:
            ConfigurationError: as `server` does, and if there is no token.
        """
        from turnout_serve.client.administrator import Administrator
        from turnout_serve.wire.administrator import TOKEN_FILE, VARIABLE

        connection, token = self.server(timeout=60.0)
        if token is None:
            raise ConfigurationError(
                f"no token of the administrator: set {VARIABLE}, or give --token FILE, such as the server's {TOKEN_FILE}"
            )
        return Administrator(connection, token)

    def server(self, timeout: float) -> tuple[Connection, str | None]:
        """Return a connection to the server, and the token for it; None without one.

        The folder of a local server contains its address and the token. Otherwise the token is that of ``--token`` or the
        variable TURNOUT_ADMIN_TOKEN.

        A folder may come from somebody else. So the address in it receives the token of the folder alone, unless it is an
        address of this machine. The public address is for other machines, and where the server is in a container.

        Args:
            timeout: seconds without a response of the server.

        Raises:
            ConfigurationError: if there is no such folder or address, or no token for the address in a folder.
        """
        if self.run.startswith(("http://", "https://")):
            return self.connection(self.run, timeout), self._token_for(self.run, None)
        folder = Path(self.run)
        own, *public = _addresses_in(folder)
        connections = [
            self.connection(own, timeout, certificate_in(folder)),
            *(self.connection(url, timeout) for url in public),
        ]
        found = next((found for found in connections if not public or _answers(found)), connections[0])
        return found, self._token_for(found.url, folder)

    def _token_for(self, url: str, folder: Path | None) -> str | None:
        """Return the token that is sent to a server; None without one.

        Args:
            url: its address.
            folder: the folder that names the address; None for an address of the command line.

        Raises:
            ConfigurationError: if there is none for the address in a folder.
        """
        from turnout_serve.client.connection import is_loopback
        from turnout_serve.wire.administrator import TOKEN_FILE, read_file, read_token

        path = Path(self.run) / TOKEN_FILE
        if folder is not None and not is_loopback(url):
            if self.token is not None or not path.is_file():
                raise ConfigurationError(
                    f"token: {folder} names the server {printable(url, 200)}, and a folder from somebody else may name any: "
                    f"give the address in place of the folder if it is the right one"
                )
            return read_file(path)
        return read_token(path) if self.token is None else read_file(self.token)


def _answers(connection: Connection) -> bool:
    """Return whether a server of this program, with a trusted certificate, answers at an address within five seconds."""
    from turnout_serve.client.calls import Call, JoinError
    from turnout_serve.client.exchange import send

    try:
        with replace(connection, timeout=5.0).client() as http:
            return "protocol" in send(http, Call("GET", "/v1/run")).table()
    except JoinError:
        return False


def _addresses_in(folder: Path) -> list[str]:
    """Return the addresses in the folder of a server: that on its machine, and the public one if there is one.

    Raises:
        ConfigurationError: if there is none.
    """
    from turnout_serve.wire.administrator import ADDRESS_FILE

    path = folder / ADDRESS_FILE
    addresses = path.read_text("utf-8", "replace").split() if path.is_file() and path.stat().st_size < _LONGEST else []
    if not addresses:
        raise ConfigurationError(
            f"{folder} is neither the address of a server (https://HOST:PORT) nor the folder of one that has run: give "
            "either"
        )
    return addresses[:2]


def certificate_in(folder: Path) -> Path | None:
    """Return the file with the certificate of the server of a folder; None without one.

    On this machine a server has no name, and its certificate that of its public address. So the certificate itself is
    compared, and neither its name nor its authority.
    """
    from turnout_serve.wire.administrator import CERTIFICATE_FILE

    path = folder / CERTIFICATE_FILE
    return path if path.is_file() and path.stat().st_size < 1 << 16 else None
