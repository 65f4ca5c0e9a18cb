"""Lock the folder of a run against other processes, and detect that it was removed or replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from turnout.core.checks import CheckpointError

PARTS = ".parts"
"""The subfolder of files that are being written."""

PATIENCE = 600.0
"""Seconds that workers wait for each other to write common files, such as tables and a report."""

_LOCK = ".lock"
_locks: dict[Path, os.stat_result] = {}
"""The lock files of this process, by the path of the folder as it was passed, and by its path without links."""


class InUse(CheckpointError):
    """Another process has locked the folder."""


class FolderGone(CheckpointError):
    """The folder of a run was removed or replaced during the run."""


def create(folder: Path) -> None:
    """Create a folder for a run unless it exists. A folder that this process has locked is not created again.

    Raises:
        FolderGone: if a folder that this process has locked was removed or replaced.
    """
    # By its own path and by that behind links: a link that has replaced the folder leads to another one.
    locks = [_locks[path] for path in (folder.absolute(), folder.resolve()) if path in _locks]
    if not locks:
        folder.mkdir(parents=True, exist_ok=True)
    elif not all(_is(folder / _LOCK, lock) for lock in locks):
        raise FolderGone(
            f"{folder} was removed or replaced while the run was going on, so nothing more can be saved there: run again, "
            "or put the folder back and resume"
        )


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
        create(folder)
        path, name = folder.resolve(), folder.absolute()
        lock = FileLock(path / _LOCK, is_singleton=True)
        first = not lock.is_locked
        try:
            _acquire(lock, path / _LOCK, patience)
        except Timeout as error:
            raise InUse(
                f"{folder} is in use by another run that is going on: wait until it ends, or give another folder"
            ) from error
        except NotImplementedError:  # a file system without locks
            yield created
            return
    try:
        if first:
            _locks[name] = _locks[path] = (path / _LOCK).stat()
            _clear(folder)
        yield created
    finally:
        try:
            if first:
                file = _locks.pop(path, None)
                _locks.pop(name, None)
                if file is not None and _is(path / _LOCK, file):
                    (path / _LOCK).unlink()
                    if created:
                        path.rmdir()
        except OSError:  # files are left in the folder, or the system does not remove one that is open
            pass
        finally:
            lock.release()


def in_use(folder: Path) -> bool:
    """Return True if another process has locked a folder."""
    if not (folder / _LOCK).exists():
        return False
    try:
        with locked(folder):
            return False
    except InUse:
        return True


def _acquire(lock: BaseFileLock, path: Path, patience: float) -> None:
    """Acquire a lock, waiting for at most `patience` seconds.

    The holder of a lock removes its file before it releases it. A file that was opened before and locked after that is stale:
    another process may have locked a new file of that name. Therefore check that the path still leads to the locked file.

    Raises:
        Timeout: if another process holds it.
    """
    for _ in range(100):
        lock.acquire(timeout=patience, poll_interval=0.02)
        number = lock._context.lock_file_fd  # the locked file; there is no public attribute
        if lock.lock_counter > 1 or number is None or _is(path, os.fstat(number)):
            return
        lock.release()
    raise Timeout(str(path))


def _is(path: Path, file: os.stat_result) -> bool:
    """Return True if a path leads to this file."""
    with suppress(OSError):
        return os.path.samestat(path.stat(), file)
    return False


def _clear(folder: Path) -> None:
    """Remove incomplete files of a killed process."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    for pattern in (".tmp*", ".*.part"):
        for left in folder.glob(pattern):
            left.unlink(missing_ok=True)


@contextmanager
def writable(paths: Iterable[Path]) -> Iterator[None]:
    """Convert errors of the system to an error that names the files."""
    try:
        yield
    except OSError as error:
        names = ", ".join(str(path) for path in paths)
        raise CheckpointError(
            f"cannot write {names}: {error}. The previous files are unchanged: free some space or give another folder"
        ) from error
