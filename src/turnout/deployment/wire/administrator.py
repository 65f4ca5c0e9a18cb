"""The administrator of a server: the token, and where a server's folder says what it is."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Literal

from turnout.core.checks import ConfigurationError

VARIABLE = "TURNOUT_ADMIN_TOKEN"
"""The variable of the environment that holds the token, for a server and for the commands of its administrator."""
TOKEN_FILE = "admin.token"
"""The file in a server's folder that holds the token where the environment has none."""
ADDRESS_FILE = "address.txt"
"""The file in a server's folder that holds the address at which it last listened."""
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{32,200}")
"""The form of every token."""
Change = Literal["name", "ban", "unban", "remove"]
CHANGES: tuple[Change, ...] = ("name", "ban", "unban", "remove")
"""Changes of a client that an administrator may make."""
MOST_CODES = 50
"""One-time codes of one request: more would be too long for an entry of the journal."""


def read_token(path: Path) -> str | None:
    """Return the administrator's token: of the environment, else of a file; None where there is neither.

    Raises:
        ConfigurationError: for a token of another form, or a file that others than its owner can read.
    """
    token = os.environ.get(VARIABLE)
    return _checked(token, VARIABLE) if token else read_file(path) if path.exists() else None


def read_file(path: Path) -> str:
    """Return the token in a file.

    Raises:
        ConfigurationError: as `read_token` does, and where the file cannot be read.
    """
    try:
        token, mode = path.read_text(encoding="utf-8", errors="replace").strip(), path.stat().st_mode
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
    """Return the token of a server's administrator; draw one and write it into the folder where there is none.

    Raises:
        ConfigurationError: as `read_token` does.
    """
    path = folder / TOKEN_FILE
    if (token := read_token(path)) is None:
        token = secrets.token_urlsafe(32)
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{token}\n")
    return token
