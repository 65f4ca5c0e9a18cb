"""Open the folder of a run: what may be in it, and the URL of the database in it."""

from __future__ import annotations

import os
import urllib.parse
from pathlib import Path

from turnout.core.checks import CheckpointError
from turnout.record import contents
from turnout_serve.wire.administrator import JOURNAL_FILE


def opened_folder(folder: Path, *, read_only: bool) -> str:
    """Create the folder of a run unless it exists; return the URL of the database in it.

    Args:
        folder: its path.
        read_only: True where nothing in it is changed.

    Raises:
        CheckpointError: if it contains a link to another folder, or something else in place of the database.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not read_only:
        _check_links(folder)
    contents.check_regular(folder / JOURNAL_FILE)
    return _sqlite_url(folder / JOURNAL_FILE, read_only)


def _check_links(folder: Path) -> None:
    """Refuse links to other folders in a folder that somebody else may have made: files there would be deleted."""
    for path in folder.iterdir():
        if path.is_symlink() and path.is_dir():
            raise CheckpointError(
                f"{path} is a link, and a server deletes the files there that it does not need: put the folder in its place"
            )


def _sqlite_url(path: Path, read_only: bool) -> str:
    """Return the URL of a journal in the folder of a run."""
    # To open a database with a write-ahead log, SQLite writes files beside it. Where it cannot, a journal whose server is
    # stopped, so that it has no log, is read as one that does not change.
    if read_only and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
        return f"sqlite:///file:{urllib.parse.quote(str(path.absolute()))}?immutable=1&uri=true"
    return f"sqlite:///{path}"
