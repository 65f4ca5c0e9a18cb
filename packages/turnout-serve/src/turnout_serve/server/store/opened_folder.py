"""Open the folder of a run: what may be in it, the URL of the database in it, and where its models and reports are."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.core.display import printable
from turnout.record import contents
from turnout_serve.server.store.facts import OBJECTS, Facts
from turnout_serve.server.store.files import Files
from turnout_serve.wire.administrator import JOURNAL_FILE

_FOLDERS = {"anchors", "evaluations", "exports", "incoming", "models", "queries", "reports", ".parts"}
# Not releases.json: who reads that tells what is counted as spent without it.
_FILE = re.compile(r"SHA256SUMS|(?!releases\.json).*\.(journal|jsonl?|parquet|part|pem|safetensors|sqlite|token|txt)")


def opened_folder(folder: Path, *, read_only: bool) -> str:
    """Create the folder of a run unless it exists; return the URL of the database in it.

    Args:
        folder: its path.
        read_only: True where nothing in it is changed.

    Raises:
        CheckpointError: if it contains a link to another folder, a folder in place of a file, or a file in place of a folder.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not read_only:
        _check_entries(folder)
    contents.check_regular(folder / JOURNAL_FILE)
    return _sqlite_url(folder / JOURNAL_FILE, read_only)


def _check_entries(folder: Path) -> None:
    """Refuse links to other folders, in a folder that somebody else may have made: files there would be deleted.

    And refuse folders in place of files, and files in place of folders, which a server could not write, now or later.
    """
    inner = [path for name in _FOLDERS - {"reports"} if (folder / name).is_dir() for path in (folder / name).iterdir()]
    for path in (*folder.iterdir(), *inner):
        is_folder, is_of_files = path.is_dir(), path.parent.name in ("exports", "incoming")
        if path.is_symlink() and is_folder:
            raise CheckpointError(
                f"{path} is a link, and a server deletes the files there that it does not need: put the folder in its place"
            )
        if is_folder and (is_of_files or _FILE.fullmatch(path.name)):
            raise CheckpointError(f"{path} is a folder, needed a file: move it away, or give another --folder")
        if not is_folder and path.parent == folder and path.name in _FOLDERS:
            raise CheckpointError(f"{path} is a file, needed a folder: move it away, or give another --folder")


def _sqlite_url(path: Path, read_only: bool) -> str:
    """Return the URL of a journal in the folder of a run."""
    # To open a database with a write-ahead log, SQLite writes files beside it. Where it cannot, a journal whose server is
    # stopped, so that it has no log, is read as one that does not change.
    if read_only and not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists():
        return f"sqlite:///file:{urllib.parse.quote(str(path.absolute()))}?immutable=1&uri=true"
    return f"sqlite:///{path}"


def open_files(
    folder: Path,
    url: str | None,
    facts: Facts,
    until_done: Callable[[Callable[[], object]], None],
    *,
    begun: bool,
    read_only: bool,
) -> Files:
    """Open the models and reports of a run, which stay where they are once the journal has begun.

    Args:
        folder: folder of the run.
        url: URL of an object store; None is none. The store that the folder names is not reached unless this is its
            URL, for the folder may come from somebody else.
        facts: about the run.
        until_done, read_only: see `Files`.
        begun: True where the journal has entries.

    Raises:
        ConfigurationError: if the object store is another one than the run has, or only the folder names it.
    """
    used = facts.get(OBJECTS) if read_only else facts.ensure(OBJECTS, "" if begun else url or "")
    if used and url != used:
        given = "" if url is None else f"got {url}, but "
        raise ConfigurationError(
            f"store: {given}the models and reports of this run are in {printable(used)}, which is reached with your "
            f"credentials: write --store {printable(quote(used))} if you trust it"
        )
    if not used and url is not None:
        raise ConfigurationError(
            f"store: got {url}, but this run has its models and reports in {folder}: leave --store out"
        )
    if not used:
        return Files(folder, until_done, read_only)
    from turnout_serve.server.store.objects import Objects

    return Objects(folder, until_done, used, read_only)
