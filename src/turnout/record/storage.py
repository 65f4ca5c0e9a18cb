"""Replace the files of a run's folder whole or not at all, and list their digests."""

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
from turnout.record.lock import PARTS, create, writable

DIGESTS = "SHA256SUMS"
"""The list of digests, as ``sha256sum --check SHA256SUMS`` reads it."""

_LINE = re.compile(rb"([0-9a-f]{64})  ([\w.-]+)")
Write = Callable[[Path], object]
"""Writes a file at the path it is given."""


def replace_files(writers: Mapping[Path, Write]) -> None:
    """Write files through ``write(temporary_path)``, then put all of them in place, in the order given.

    Nothing is replaced before everything is written and on disk, so a failure leaves the old files as they were.

    Raises:
        CheckpointError: where a file cannot be written.
    """
    parts = {path: path.with_name(f".{path.name}.part") for path in writers}
    with writable(writers):
        try:
            for path, write in writers.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(parts[path], write)
            for path, part in parts.items():
                move(part, path)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)


def save(folder: Path, writers: Mapping[str, Write], previous: Mapping[str, str] | None = None) -> None:
    """Write files into the folder of a run as `replace_files` does, and list their digests.

    The list names the old and the new digest of a file until the new file is in place, so that a process may be killed at
    any moment without a whole file being taken for a damaged one.

    Args:
        folder: where they go.
        writers: what writes each file, by name.
        previous: under which name to keep the file that is replaced, if that is whole; by name.

    Raises:
        CheckpointError: where a file cannot be written.
    """
    parts, earlier = {name: folder / PARTS / name for name in writers}, previous or {}
    with writable(folder / name for name in writers):
        create(folder)
        known, fresh = _digests(folder), {}
        if (folder / PARTS).is_symlink():  # in a folder that somebody sent: what is written stays within it
            (folder / PARTS).unlink()
        (folder / PARTS).mkdir(exist_ok=True)
        try:
            for name, write in writers.items():
                _write(parts[name], write)
                fresh[name] = [digest(parts[name])]
            backups = {keep: known[name] for name, keep in earlier.items() if is_whole(folder / name)}
            both = {name: [*known.get(name, []), *(fresh | backups).get(name, [])] for name in known | fresh | backups}
            _list_digests(folder, both)
            for name, part in parts.items():
                if earlier.get(name) in backups:
                    move(folder / name, folder / earlier[name])
                move(part, folder / name)
            _list_digests(folder, known | backups | fresh)
            sync(folder)
        finally:
            shutil.rmtree(folder / PARTS, ignore_errors=True)


def discard(folder: Path) -> None:
    """Delete what `save` has written into a folder."""
    for name in (*_digests(folder), DIGESTS):
        (folder / name).unlink(missing_ok=True)


def check_all(folder: Path, but: Collection[str] = ()) -> None:
    """Refuse a folder where a file does not have its listed digest.

    Args:
        folder: of a run.
        but: names of files that are not checked.

    Raises:
        CheckpointError: naming the damaged file.
    """
    for name in _digests(folder):
        if name not in but:
            check(folder / name)


def check(path: Path) -> None:
    """Refuse a file whose digest is not the listed one; what no list names (in runs of older versions) passes.

    Raises:
        CheckpointError: where the file or the list is damaged.
    """
    if path.exists() and not _matches(path):
        raise CheckpointError(
            f"{path} is damaged (its digest is not the one in {DIGESTS}): restore it from a copy, or run again"
        )


def is_whole(path: Path) -> bool:
    """Return whether the file is there, and its digest is listed."""
    return path.exists() and path.name in _digests(path.parent) and _matches(path)


def read_json(path: Path, instead: str, form: type[contents.Contents] | None = None) -> dict[str, Any]:
    """Read an object from a JSON file of a run.

    Args:
        path: the file.
        instead: what to give in place of a folder without it.
        form: what the object has to hold; None is any.

    Raises:
        CheckpointError: where it is missing or damaged, or a field of it is missing or wrong.
    """
    try:
        text = path.read_bytes()
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
    """Return what writes a value as JSON."""
    text = json.dumps(value, indent=2)
    return lambda path: path.write_text(text, encoding="utf-8")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _matches(path: Path) -> bool:
    """Return whether a file has one of the digests that are listed for it, if any are.

    Another process may replace the file and then the list between reading one and the other, so a list that has changed
    meanwhile is read again. A file that is just being moved is not there.
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
    """Return the listed digests by file: one each, or two of a file that was being replaced."""
    digests: dict[str, list[str]] = {}
    path = folder / DIGESTS
    for line in path.read_bytes().splitlines() if path.exists() else ():
        match = _LINE.fullmatch(line)
        if match is None:
            raise CheckpointError(f"{path} is damaged: delete it to have the files of {folder} taken as they are")
        digests.setdefault(match[2].decode(), []).append(match[1].decode())
    return digests


def _list_digests(folder: Path, digests: Mapping[str, list[str]]) -> None:
    """Replace the list of digests."""
    lines = [f"{digest}  {name}\n" for name, several in sorted(digests.items()) for digest in several]
    part = folder / PARTS / DIGESTS
    _write(part, lambda path: path.write_text("".join(lines), encoding="utf-8", newline="\n"))
    move(part, folder / DIGESTS)


def _write(part: Path, write: Write) -> None:
    """Write a file with the permissions of new files, and bring it to the disk.

    A link in its place, which a folder that somebody sent may hold, is removed and not followed.
    """
    part.unlink(missing_ok=True)
    part.touch(exist_ok=False)
    mode = part.stat().st_mode
    write(part)
    part.chmod(mode)
    sync(part)
