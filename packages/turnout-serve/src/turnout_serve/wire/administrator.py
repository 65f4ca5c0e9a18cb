"""The token of a server's administrator, and the files and environment variable that hold it."""

from __future__ import annotations

import os
import re
import secrets
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from turnout.core.checks import ConfigurationError
from turnout.record.contents import open_regular
from turnout.record.storage import replace_files

VARIABLE = "TURNOUT_ADMIN_TOKEN"
"""Environment variable with the token, for a server and for the commands of its administrator."""
TOKEN_FILE = "admin.token"
"""File in a server's folder with the token, if the environment has none."""
ADDRESS_FILE = "address.txt"
"""File in a server's folder with the address at which it last listened, and its public one."""
JOURNAL_FILE = "journal.sqlite"
"""File in a server's folder with the journal, unless that is in PostgreSQL."""
CODES_FILE = "codes.txt"
"""File in a server's folder with the first one-time codes."""
CERTIFICATE_FILE = "certificate.pem"
"""File in a server's folder with its TLS certificate, which the commands of its administrator trust at that address."""
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{32,200}")
"""Pattern of tokens."""
Change = Literal["name", "ban", "unban", "remove"]
CHANGES: tuple[Change, ...] = get_args(Change)
"""Changes of a client by an administrator."""
MOST_CODES = 50
"""Maximum number of one-time codes of one request, whose hashes have to fit into an entry of the journal."""


def read_token(path: Path) -> str | None:
    """Return the administrator's token from the environment, or else from a file; None without either.

    Raises:
        ConfigurationError: if a token has another form, or others than its owner can read the file.
    """
    token = os.environ.get(VARIABLE)
    return _checked(token, VARIABLE) if token else read_file(path) if path.exists() else None


def read_file(path: Path) -> str:
    """Return the token in a file.

    Raises:
        ConfigurationError: see `read_token`, and if the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            token, mode = file.read(1000).decode(errors="replace").strip(), path.stat().st_mode
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    if os.name == "posix" and mode & 0o077:
        raise ConfigurationError(f"others can read {path}, which holds the administrator's token: chmod 600 {path}")
    return _checked(token, str(path))


def _checked(token: str, where: str) -> str:
    if not TOKEN.fullmatch(token):
        raise ConfigurationError(f"{where}: needed a token of 32 to 200 letters, digits or ._~+/=-")
    return token


def server_token(folder: Path) -> str:
    """Return the token of a server's administrator; without one, draw it and write it into the folder.

    Raises:
        ConfigurationError: see `read_token`.
    """
    path = folder / TOKEN_FILE
    if (token := read_token(path)) is None:
        token = secrets.token_urlsafe(32)
        # Whole, because commands of the administrator read it while the server starts.
        replace_files({path: partial(Path.write_text, data=f"{token}\n", encoding="utf-8")}, private=True)
    return token
