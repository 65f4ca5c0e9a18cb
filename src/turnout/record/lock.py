"""Lock the folder of a run against other processes, and detect that it was removed or replaced.

POSIX lets anybody who may write in the parent of a folder replace it at any time. The log is therefore opened relative to a
descriptor of the folder, which is that of the lock, and not through a link. Other files are written by libraries that take
paths: they are checked before and after writing, and moved to their places only if nothing has changed. Windows does not let
a folder be moved or removed while its lock is open, and has neither such descriptors nor O_NOFOLLOW: a link that replaces a
file within the folder between check and opening is followed there.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import BaseFileLock, FileLock, Timeout

from turnout.core import system
from turnout.core.checks import CheckpointError
from turnout.record import outer
from turnout.record.contents import writable
from turnout.record.outer import FolderGone, is_same

PARTS = ".parts"
"""The subfolder of files that are being written."""

PATIENCE = 600.0
"""Seconds that workers wait for each other to write common files, such as tables and a report."""

_MOMENT = 0.1
"""Seconds that every process waits for a lock."""

_LOCK = ".lock"
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
_files: dict[Path, BaseFileLock] = {}
"""The locks that this process holds, by the path of the folder without links."""
_locks: dict[Path, os.stat_result] = {}
"""Their files, by the path of the folder as it was passed, and by its path without links."""
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
    elif not all(is_same(folder / _LOCK, lock) for lock in locks):
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
    flags = os.O_RDWR | os.O_CREAT | system.BINARY | getattr(os, "O_NOFOLLOW", 0)
    if os.open not in os.supports_dir_fd:
        number = os.open(path, flags, 0o666)
    else:
        held = os.open(folder, os.O_RDONLY)
        try:
            lock = _locks.get(folder.absolute())
            if lock is not None and not os.path.samestat(os.stat(_LOCK, dir_fd=held, follow_symlinks=False), lock):
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
        path, name = folder.resolve(), folder.absolute()
        lock, owner = _files.get(path) or FileLock(path / _LOCK), os.getpid()
        first = not lock.is_locked
        has_locks = not first or _has_locks(path / _LOCK)
    if not has_locks:
        yield created
        return
    with writable([folder]):
        try:
            _acquire(lock, path / _LOCK, patience)
        except Timeout as error:
            raise InUse(
                f"{folder} is in use by another run that is going on: wait until it ends, or give another folder"
            ) from error
    try:
        if first:
            _files[path] = lock
            _locks[name] = _locks[path] = (path / _LOCK).stat()
            _inherited.difference_update((path, name))
            outer.check(folder)
            with writable([folder]):
                _clear(folder)
        yield created
    finally:
        if os.getpid() == owner:  # the lock is not that of a child which was forked meanwhile
            _release(lock, path, name, first, created)


def _release(lock: BaseFileLock, path: Path, name: Path, first: bool, created: bool) -> None:
    """Release a lock, and remove its file and the folder if it was created and is empty."""
    try:
        if first:
            _files.pop(path, None)
            file = _locks.pop(path, None)
            _locks.pop(name, None)
            if file is not None and is_same(path / _LOCK, file):
                (path / _LOCK).unlink()
                if created:
                    path.rmdir()
    except OSError:  # files are left in the folder, or the system does not remove one that is open
        pass
    finally:
        lock.release()


def _forget() -> None:
    """In a process that was forked, hold none of the locks of its parent.

    Descriptors are closed and not unlocked, which would unlock them for the parent, too: its lock ends with the parent then,
    and not with a child that lives longer.
    """
    for lock in _files.values():
        context = lock._context  # filelock itself does the same since version 4
        if context.lock_file_fd is not None:
            with suppress(OSError):
                os.close(context.lock_file_fd)
            context.lock_file_fd, context.lock_counter = None, 0
    _inherited.update(_locks)
    _files.clear()
    _locks.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget)


def in_use(folder: Path) -> bool:
    """Return True if another process has locked a folder. Reads alone.

    Raises:
        ConfigurationError: if the system does not accept its path.
    """
    system.check_path(folder)
    file = folder / _LOCK
    if folder.resolve() in _files or not file.exists():
        return False
    if system.WINDOWS:
        return _in_use_on_windows(file)
    import fcntl

    try:
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:  # removed meanwhile, or no lock of ours
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)  # ends when the file is closed
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(number)
    return False


def _in_use_on_windows(file: Path) -> bool:
    """Return `in_use` by taking the lock for a moment, because Windows has no shared ones."""
    lock = FileLock(file)
    try:
        lock.acquire(timeout=_MOMENT, poll_interval=0.02)
    except Timeout:
        return True
    except OSError:  # removed meanwhile, or no lock of ours
        return False
    lock.release()
    return False


def _has_locks(file: Path) -> bool:
    """Return False on a file system without locks, where each version of filelock does something else.

    Its newer versions fall back to the existence of a file, which a killed process leaves behind.
    """
    if system.WINDOWS:
        return True
    import fcntl

    number = os.open(file, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)  # ends when the file is closed
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            return True
        file.unlink(missing_ok=True)
        return False
    finally:
        os.close(number)
    return True


def _acquire(lock: BaseFileLock, path: Path, patience: float) -> None:
    """Acquire a lock, waiting for at most `patience` seconds.

    The holder of a lock removes its file before it releases it. A file that was opened before and locked after that is stale:
    another process may have locked a new file of that name. Therefore check that the path still leads to the locked file.

    Raises:
        Timeout: if another process holds it.
    """
    for _ in range(100):
        # `in_use` of another process holds the lock for a moment.
        lock.acquire(timeout=max(patience, _MOMENT), poll_interval=0.02)
        number = lock._context.lock_file_fd  # the locked file; there is no public attribute
        if lock.lock_counter > 1 or number is None or is_same(path, os.fstat(number)):
            return
        lock.release()
    raise Timeout(str(path))


def _clear(folder: Path) -> None:
    """Remove incomplete files of a killed process."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    for pattern in (".tmp*", ".*.part"):
        for left in folder.glob(pattern):
            left.unlink(missing_ok=True)
