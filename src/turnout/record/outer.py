"""Detect that the folder of several runs was removed or replaced between two of them.

Several processes share the folder of a comparison, so that none of them locks it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from turnout.core.checks import CheckpointError

_watched: dict[Path, os.stat_result] = {}


class FolderGone(CheckpointError):
    """The folder of a run, or of several, was removed or replaced meanwhile."""


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Have `check` raise an error for all folders below this one after it was removed or replaced by another one."""
    path = folder.absolute()
    if path in _watched:
        yield
        return
    watch({path: path.stat()})
    try:
        yield
    finally:
        _watched.pop(path, None)


def watch(folders: Mapping[Path, os.stat_result]) -> None:
    """Watch the folders that another process of this machine watches, to the end of this process."""
    _watched.update(folders)


def all_watched() -> dict[Path, os.stat_result]:
    """Return the folders that this process watches, for `watch` in another process."""
    return dict(_watched)


def check(folder: Path) -> None:
    """Check that neither this folder nor one around it was removed or replaced since it has been watched.

    Raises:
        FolderGone: if folders were deleted, with the outermost of them.
    """
    path = folder.absolute()
    for one in (*reversed(path.parents), path) if _watched else ():
        if one in _watched and not is_same(one, _watched[one]):
            raise FolderGone(
                f"{one} was removed or replaced while its runs were going on, so nothing more can be saved there: put it "
                "back, and the same command goes on"
            )


def is_same(path: Path, file: os.stat_result) -> bool:
    """Return True if a path leads to this file or folder."""
    with suppress(OSError):
        return os.path.samestat(path.stat(), file)
    return False
