"""The folder of a run that is open: what may be in it, the URL of its database, and whether it is still the same."""

from __future__ import annotations

import os
import urllib.parse
from pathlib import Path

from turnout.core.checks import CheckpointError
from turnout.record import contents
from turnout_serve.server.store.database import StoreLost
from turnout_serve.wire.administrator import JOURNAL_FILE


class OpenedFolder:
    """The folder of a run, which is created unless it exists.

    Args:
        folder: its path.
        has_database: True if the database is in it.
        read_only: True where nothing in it is changed.

    Raises:
        CheckpointError: if it contains a link to another folder, or something else in place of the database.
    """

    def __init__(self, folder: Path, *, has_database: bool, read_only: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not read_only:
            _check_links(folder)
        contents.check_regular(folder / JOURNAL_FILE)
        self._folder, self._read_only = folder, read_only
        self._paths = [folder, folder / JOURNAL_FILE] if has_database else [folder]
        self._inodes: list[tuple[int, int] | None] = []

    @property
    def url(self) -> str:
        """The URL of the database in the folder."""
        return _sqlite_url(self._folder / JOURNAL_FILE, self._read_only)

    def remember(self) -> None:
        """Remember which folder and database were opened."""
        self._inodes = [_inode(path) for path in self._paths]

    def check(self) -> None:
        """Verify that they are still those that were opened.

        Raises:
            StoreLost: if one of them was removed or replaced.
        """
        for path, inode in zip(self._paths, self._inodes, strict=True):
            if _inode(path) != inode:
                raise StoreLost(
                    f"{path} was removed or replaced while the server ran: restore {self._folder} from a copy"
                )


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


def _inode(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file or folder; None where there is none."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino
