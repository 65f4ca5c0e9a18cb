"""Lock the folder of a run against other processes, and detect that it was removed or replaced.

POSIX lets anybody who may write in the parent of a folder replace it at any time. The log is therefore opened relative to a
descriptor of the folder, which is that of the lock, and not through a link. Other files are written by libraries that take
paths: they are checked before and after writing, and moved to their places only if nothing has changed. Windows does not let
a folder be moved or removed while its lock is open, and has neither such descriptors nor O_NOFOLLOW: a link that replaces a
file within the folder between check and opening is followed there.
"""

# The locks are those of filelock.FileLock, on our own descriptors. FileLock does not tell which file it has locked, without
# which a folder that was replaced goes unnoticed. On a file system without locks it creates a file instead, which a killed
# process leaves behind, so that the run could not be resumed.

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import BinaryIO

from filelock import lock_descriptor

from turnout.core import system
from turnout.core.checks import CheckpointError
from turnout.record import outer
from turnout.record.contents import writable
from turnout.record.outer import FolderGone, is_same

PARTS = ".parts"
"""The subfolder of files that are being written."""

PATIENCE = 600.0
"""Seconds that workers wait for each other to write common files, such as tables and a report."""

_LOCK = ".lock"
_MOMENT = 0.1  # seconds that every process waits for a lock, because `in_use` of another one holds it for a moment
_PAUSE = 0.02  # seconds between two attempts
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
_FLAGS = system.BINARY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True, eq=False)
class _Lock:
    """A lock that a thread of this process holds."""

    descriptor: int
    file: os.stat_result
    thread: int


_locks: dict[Path, _Lock] = {}
"""The locks of this process, by the path of the folder as it was passed, and by its path without links."""
_inherited: set[Path] = set()
"""The folders that the process from which this one was forked had locked then."""


class InUse(CheckpointError):
    """Another process has locked the folder."""


def create(folder: Path) -> None:
    """Create a folder for a run unless it exists. A folder that this process has locked is not created again.

    Raises:
        FolderGone: if a folder that this process has locked was removed or replaced.
        InUse: if this process was forked from one that had locked the folder.
    """
    if not _inherited.isdisjoint((folder.absolute(), folder.resolve())):
        raise InUse(f"{folder} is in use by the process that this one was forked from, which alone may write there")
    _create(folder)


def _create(folder: Path) -> None:
    """Create a folder as `create` does."""
    outer.check(folder)
    # By its own path and by that behind links: a link that has replaced the folder leads to another one.
    locks = [_locks[path] for path in (folder.absolute(), folder.resolve()) if path in _locks]
    if not locks:
        folder.mkdir(parents=True, exist_ok=True)
    elif not all(is_same(folder / _LOCK, lock.file) for lock in locks):
        raise _gone(folder)


def _gone(folder: Path) -> FolderGone:
    """Return the error for a folder that is not the one that was locked."""
    return FolderGone(
        f"{folder} was removed or replaced while the run was going on, so nothing more can be saved there: run again, "
        "or put the folder back and resume"
    )


def open_file(path: Path) -> BinaryIO:
    """Open a file in the folder of a run for reading and writing, without following a link; create it if it is missing.

    Raises:
        FolderGone: if this process has locked the folder, and it was removed or replaced.
        OSError: if it is a link.
    """
    folder = path.parent
    create(folder)
    flags = os.O_RDWR | os.O_CREAT | _FLAGS
    if os.open not in os.supports_dir_fd:
        number = os.open(path, flags, 0o666)
    else:
        held = os.open(folder, os.O_RDONLY)
        try:
            lock = _locks.get(folder.absolute())
            if lock is not None and not os.path.samestat(os.stat(_LOCK, dir_fd=held, follow_symlinks=False), lock.file):
                raise _gone(folder)
            number = os.open(path.name, flags, 0o666, dir_fd=held)
        except FileNotFoundError:
            raise _gone(folder) from None
        finally:
            os.close(held)
    return os.fdopen(number, "r+b")


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[bool]:
    """Lock a folder against other processes, and remove files that a killed process has left incomplete.

    The system releases the lock at the end of the process, in any case. The same thread may lock a folder repeatedly. A
    folder that was created here and is empty at the end is removed.

    Args:
        folder: the folder.
        patience: seconds to wait for another process.

    Yields:
        True if the folder was created here.

    Raises:
        InUse: if another process has locked it.
        CheckpointError: if it cannot be written.
    """
    with writable([folder]):
        created = not folder.exists()
        _create(folder)
        path, lock = folder.resolve(), None
        if path not in _locks or _locks[path].thread != get_ident():
            lock = _acquire(folder, path / _LOCK, patience)
    if lock is None:  # this thread has the lock already, or there are none
        yield created
        return
    both = (path, folder.absolute())
    try:
        _locks.update(dict.fromkeys(both, lock))
        _inherited.difference_update(both)
        outer.check(folder)
        with writable([folder]):
            _clear(folder)
        yield created
    finally:
        if _locks.get(path) is lock:  # it is not in a child that was forked meanwhile
            for one in both:
                _locks.pop(one, None)
            _release(lock, path, created)


def _acquire(folder: Path, file: Path, patience: float) -> _Lock | None:
    """Lock the file of a folder, waiting for at most `patience` seconds; return None on a file system without locks.

    Raises:
        InUse: if another process, or another thread, holds it.
    """
    end = time.monotonic() + max(patience, _MOMENT)
    while True:
        try:
            lock = _attempt(file)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            file.unlink(missing_ok=True)
            return None
        if lock is not None:
            return lock
        if time.monotonic() > end:
            raise InUse(
                f"{folder} is in use by another run that is going on: wait until it ends, or give another folder"
            )
        time.sleep(_PAUSE)


def _attempt(file: Path) -> _Lock | None:
    """Lock a file, or return None if another process holds it, or has removed it meanwhile.

    The holder of a lock removes its file before it releases it. A file that was opened before and locked after that is stale:
    another process may have locked a new file of that name. Therefore check that the path still leads to the locked file.
    """
    descriptor, lock = os.open(file, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666), None
    try:
        if lock_descriptor(descriptor, blocking=False) and is_same(file, locked_file := os.fstat(descriptor)):
            lock = _Lock(descriptor, locked_file, get_ident())
    finally:
        if lock is None:
            os.close(descriptor)
    return lock


def _release(lock: _Lock, path: Path, created: bool) -> None:
    """Release a lock, and remove its file and the folder if it was created and is empty."""
    try:
        if is_same(path / _LOCK, lock.file):
            (path / _LOCK).unlink()
            if created:
                path.rmdir()
    except OSError:  # files are left in the folder, or the system does not remove one that is open
        pass
    finally:
        os.close(lock.descriptor)


def _forget() -> None:
    """In a process that was forked, hold none of the locks of its parent.

    Descriptors are closed and not unlocked, which would unlock them for the parent, too: its lock ends with the parent then,
    and not with a child that lives longer.
    """
    for descriptor in {lock.descriptor for lock in _locks.values()}:
        with suppress(OSError):
            os.close(descriptor)
    _inherited.update(_locks)
    _locks.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget)


def in_use(folder: Path) -> bool:
    """Return True if another process has locked a folder. Reads alone.

    Raises:
        ConfigurationError: if the system does not accept its path.
    """
    system.check_path(folder)
    if folder.resolve() in _locks:
        return False
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | _FLAGS)
    except OSError:  # there is none, or no lock of ours
        return False
    try:
        return _is_locked(descriptor)
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)  # which ends the lock that was asked for


def _is_locked(descriptor: int) -> bool:
    """Return True if another process has locked a file."""
    if system.WINDOWS or sys.platform == "win32":  # which has no shared locks; type checkers know the second
        return not lock_descriptor(descriptor, blocking=False)
    import fcntl

    # Shared, so that processes which query at the same moment do not see each other.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _clear(folder: Path) -> None:
    """Remove incomplete files of a killed process."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    for pattern in (".tmp*", ".*.part"):
        for left in folder.glob(pattern):
            left.unlink(missing_ok=True)
