"""The administrator of a server on the command line: which server, and with which token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from turnout.core.checks import ConfigurationError

if TYPE_CHECKING:
    from turnout.deployment.client.administrator import Administrator


def administrator(
    run: str,
    token: Path | None = None,
    ca: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Administrator:
    """Return who administers a server.

    Args:
        run: the folder of a server on this machine, which says where it listens and holds the token; or its address.
        token: a file with the administrator's token; None is the variable TURNOUT_ADMIN_TOKEN, or the folder's.
        ca, certificate, key: files for TLS.

    Raises:
        ConfigurationError: where there is no such folder or address, or no token.
    """
    from turnout.cli.deployed import needs

    needs("join", "httpx2")
    from turnout.deployment.client.administrator import Administrator
    from turnout.deployment.client.join import Connection
    from turnout.deployment.wire.administrator import ADDRESS_FILE, TOKEN_FILE, VARIABLE, read_file, read_token

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
    return Administrator(Connection(url, ca, certificate, key, timeout=60.0), found)
