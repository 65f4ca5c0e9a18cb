"""Flush and replace files, and read what the machine has, in ways that each operating system knows.

Windows flushes no file that was opened for reading, opens no folder, and neither replaces nor deletes a file that somebody
has open.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

WINDOWS = sys.platform == "win32"

BINARY: int = getattr(os, "O_BINARY", 0)
"""The flag of `os.open` without which Windows writes other line ends than it is given."""

_PATIENCE, _PAUSE = 2.0, 0.02  # seconds


def flush(file: int) -> None:
    """Bring what was written through a file descriptor to the disk; on macOS also what the disk itself holds back."""
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # a file system that does not know it
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
            return
    os.fsync(file)


def sync(path: Path) -> None:
    """Bring a file to the disk, or the names in a folder, where a system can be asked to."""
    if not path.is_dir():
        with path.open("r+b") as file:
            flush(file.fileno())
        return
    if WINDOWS:
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def move(part: Path, path: Path) -> None:
    """Put a file or folder where it belongs, in one step, over the file that is there.

    On Windows that fails while another process has the file open, as readers and virus scanners do, so it is tried again for
    two seconds.
    """
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            os.replace(part, path)
            return
        except PermissionError:
            if not WINDOWS or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)


@contextmanager
def same_directory() -> Iterator[None]:
    """Go back to the working directory at the end: code of users may change it, and relative paths would lead elsewhere."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed, and no relative path leads anywhere
        yield
        return
    with chdir(here):
        yield


def remove_once_closed(path: Path) -> None:
    """Delete a file that this process has open: now, or at its end where a system does not delete it before."""
    try:
        path.unlink()
    except PermissionError:
        atexit.register(_remove, path)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def memory_bytes() -> float:
    """Return how much memory the machine has, in bytes; infinite where the system does not say."""
    sysconf: Any = getattr(os, "sysconf", None)
    if sysconf is None or "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return math.inf
    return sysconf("SC_PHYS_PAGES") * sysconf("SC_PAGE_SIZE")


def allowed_processors() -> int:
    """Return how many processors this process may run on; all of the machine where the system does not say."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
