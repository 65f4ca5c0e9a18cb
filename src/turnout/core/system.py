"""Check paths, flush and replace files, and query memory and processors, portably.

Windows cannot flush a file that was opened for reading, cannot open a folder, and cannot replace or delete an open file.
"""

from __future__ import annotations

import atexit
import errno
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any

from turnout.core.checks import ConfigurationError, refuse

WINDOWS = sys.platform == "win32"

BINARY: int = getattr(os, "O_BINARY", 0)
"""The flag of `os.open` without which Windows converts line ends."""

_PATIENCE, _PAUSE = 2.0, 0.02  # seconds

_NO_FOLDERS = {errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems that flush files and no folders, such as shares of a virtual machine's host."""


def check_path(path: Path) -> None:
    """Check that the system accepts a path, whether or not it exists.

    Raises:
        ConfigurationError: if one of its names or the whole is too long, or if it has a null character.
    """
    whole = path.absolute()
    there = Path(whole.anchor)
    try:
        _look(whole)
        for name in whole.parts[1:]:  # the system reports no long name below a folder that does not exist
            if _look(there / name):
                there = there / name
    except ValueError:
        raise refuse("path", given=str(path), needed="a path without null characters") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise too_long(path) from None


def _look(path: Path) -> bool:
    """Return True if a path exists.

    Raises:
        OSError: if it can neither be read nor be missing, such as a name that is too long.
        ValueError: if it has a null character.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
        return True
    return False


def too_long(path: Path) -> ConfigurationError:
    """Return the error for a path that is too long for the system."""
    longest = max(len(os.fsencode(name)) for name in path.parts)
    return ConfigurationError(
        f"the name {str(path)[:60]!r}... is too long: its longest part has {longest:,} bytes. Most systems allow 255, "
        "and about 4,000 for the whole path: give a shorter name"
    )


def flush(file: int) -> None:
    """Flush a file descriptor to the disk; on macOS also the cache of the disk."""
    if sys.platform == "darwin":
        import fcntl

        with suppress(OSError):  # not supported by all file systems
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
            return
    os.fsync(file)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk if the system supports it."""
    if not path.is_dir():
        with path.open("r+b") as file:
            flush(file.fileno())
        return
    if WINDOWS:
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in _NO_FOLDERS:
            raise
    finally:
        os.close(number)


def move(part: Path, path: Path) -> None:
    """Move a file or folder atomically, replacing an existing file.

    On Windows this fails while another process, such as a virus scanner, has the file open; it is retried for two seconds.
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
    """Restore the working directory at the end, which user code may change."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # it was removed, so that no relative path is valid
        yield
        return
    with chdir(folder):
        yield


def remove_once_closed(path: Path) -> None:
    """Delete a file that this process has open: now, or at the end of the process if the system does not allow it."""
    try:
        path.unlink()
    except PermissionError:
        atexit.register(_remove, path)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def memory_bytes() -> float:
    """Return the physical memory of the machine in bytes; infinite if unknown."""
    sysconf: Any = getattr(os, "sysconf", None)
    if sysconf is None or "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):
        return math.inf
    return sysconf("SC_PHYS_PAGES") * sysconf("SC_PAGE_SIZE")


def allowed_processors() -> int:
    """Return the number of processors that this process may run on; all of the machine if unknown."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
