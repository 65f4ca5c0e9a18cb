"""Replace files of a run atomically, and list their digests."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnout.core.checks import CheckpointError
from turnout.core.system import move, sync
from turnout.record import contents
from turnout.record.contents import writable
from turnout.record.lock import PARTS, create

DIGESTS = "SHA256SUMS"
"""The list of digests, as ``sha256sum --check SHA256SUMS`` reads it."""

_LINE = re.compile(rb"([0-9a-f]{64})  ([\w.-]+)")
Write = Callable[[Path], object]
"""A function that writes a file at a path."""


def replace_files(writers: Mapping[Path, Write], *, private: bool = False) -> None:
    """Write files through ``write(temporary_path)``, then move all of them to their paths, in order.

    No file is replaced before all are written and flushed, so that a failure leaves the old files unchanged.

    Args:
        writers: functions that write the files, by path.
        private: let nobody but the owner read them, from their first byte on.

    Raises:
        CheckpointError: if a file cannot be written.
    """
    parts = {path: path.with_name(f".{path.name}.part") for path in writers}
    with writable(writers):
        try:
            for path, write in writers.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(parts[path], write, mode=0o600 if private else 0o666)
            for path, part in parts.items():
                move(part, path)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)


def save(folder: Path, writers: Mapping[str, Write], previous: Mapping[str, str] | None = None) -> None:
    """Write files into the folder of a run as `replace_files` does, and list their digests.

    The list has the old and the new digest of a file until the new file is in place, so that a process may be killed at any
    time without an intact file being considered damaged.

    Args:
        folder: the folder.
        writers: functions that write the files, by name.
        previous: the name under which the replaced file is kept if it is intact, by name.

    Raises:
        CheckpointError: if a file cannot be written.
    """
    parts = {name: folder / PARTS / name for name in writers}
    with writable(folder / name for name in writers):
        create(folder)
        if (folder / PARTS).is_symlink():  # a folder from elsewhere must not redirect writing
            (folder / PARTS).unlink()
        (folder / PARTS).mkdir(exist_ok=True)
        try:
            digests = {}
            for name, write in writers.items():
                _write(parts[name], write)
                digests[name] = [digest(parts[name])]
            create(folder)  # again: it may have been replaced while they were written
            _move_all(folder, parts, digests, previous or {})
        finally:
            shutil.rmtree(folder / PARTS, ignore_errors=True)


def _move_all(
    folder: Path, parts: Mapping[str, Path], digests: dict[str, list[str]], previous: Mapping[str, str]
) -> None:
    """Move written files to the folder, listing old and new digests meanwhile."""
    known = _digests(folder)
    backups = {backup: known[name] for name, backup in previous.items() if is_whole(folder / name)}
    fresh = digests | backups
    _list_digests(folder, {name: [*known.get(name, []), *fresh.get(name, [])] for name in known | fresh})
    for name, part in parts.items():
        if previous.get(name) in backups:
            move(folder / name, folder / previous[name])
        move(part, folder / name)
    _list_digests(folder, known | backups | digests)
    sync(folder)


def discard(folder: Path) -> None:
    """Delete the files that `save` has written into a folder."""
    for name in (*_digests(folder), DIGESTS):
        (folder / name).unlink(missing_ok=True)


def check_all(folder: Path, but: Collection[str] = ()) -> None:
    """Check the digests of all listed files of a folder.

    Args:
        folder: the folder of a run.
        but: names of files that are not checked.

    Raises:
        CheckpointError: if not, naming the damaged file.
    """
    for name in _digests(folder):
        if name not in but:
            check(folder / name)


def check(path: Path) -> None:
    """Check the digest of a file; files that are not listed (in runs of older versions) pass.

    Raises:
        CheckpointError: if the file or the list is damaged.
    """
    contents.check_regular(path)
    if path.exists() and not _matches(path):
        raise contents.damaged(path, f"its digest is not the one in {DIGESTS}")


def is_whole(path: Path) -> bool:
    """Return True if the file exists and has its listed digest."""
    return path.exists() and path.name in _digests(path.parent) and _matches(path)


def read_json(path: Path, instead: str, form: type[contents.Contents] | None = None) -> dict[str, Any]:
    """Read an object from a JSON file of a run.

    Args:
        path: the file.
        instead: the hint in the error for a missing file.
        form: the required form of the object; None is any.

    Raises:
        CheckpointError: if it is missing or damaged, or if a field is missing or invalid.
    """
    try:
        text = contents.read_text(path)
        check(path)
        value = contents.parse(text)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path.parent} holds no {path.name}: {instead}") from error
    except (OSError, ValueError) as error:
        raise contents.damaged(path, error) from error
    if form is not None:
        contents.check(path, form, value)
    return value


def json_writer(value: Any) -> Write:
    """Return a function that writes a value as JSON."""
    return text_writer(json.dumps(value, indent=2))


def text_writer(text: str) -> Write:
    """Return a function that writes a text."""
    return lambda path: path.write_text(text, encoding="utf-8")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with contents.readable(path), contents.open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matches(path: Path) -> bool:
    """Return True if a file has one of its listed digests, or if none are listed.

    Another process may replace the file and then the list between reading one and the other. A list that has changed
    meanwhile is therefore read again. A file that is being moved may be missing.
    """
    listed, before = _digests(path.parent).get(path.name), None
    with suppress(FileNotFoundError):
        while listed is not None and listed != before:
            if digest(path) in listed:
                return True
            listed, before = _digests(path.parent).get(path.name), listed
        return listed is None
    return True


def _digests(folder: Path) -> dict[str, list[str]]:
    """Return the listed digests by file: one each, or two for a file that is being replaced."""
    digests: dict[str, list[str]] = {}
    path = folder / DIGESTS
    contents.check_regular(path)
    with contents.readable(path):
        lines = contents.read_text(path).splitlines() if path.exists() else []
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise CheckpointError(f"{path} is damaged: delete it to have the files of {folder} taken as they are")
        digests.setdefault(match[2].decode(), []).append(match[1].decode())
    return digests


def _list_digests(folder: Path, digests: Mapping[str, list[str]]) -> None:
    """Replace the list of digests."""
    lines = [f"{digest}  {name}\n" for name, listed in sorted(digests.items()) for digest in listed]
    part = folder / PARTS / DIGESTS
    _write(part, lambda path: path.write_text("".join(lines), encoding="utf-8", newline="\n"))
    move(part, folder / DIGESTS)


def _write(part: Path, write: Write, mode: int = 0o666) -> None:
    """Write a file with the permissions of new files of a mode, and flush it.

    A link at its path, which a folder from elsewhere may contain, is removed and not followed.
    """
    part.unlink(missing_ok=True)
    part.touch(mode, exist_ok=False)
    mode = part.stat().st_mode
    write(part)
    if part.is_symlink():
        raise OSError(f"{part} was replaced by a link")
    part.chmod(mode)
    sync(part)
