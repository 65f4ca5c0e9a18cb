"""Keep other processes out of the folder of a run, and notice where the folder was removed or replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from turnout.core.checks import CheckpointError

PARTS = ".parts"
"""The folder of files that are being written, below that of a run."""

PATIENCE = 600.0
"""Seconds that the workers of a folder wait for each other where all write the same files: tables, and a report."""

_LOCK = ".lock"
_locks: dict[Path, os.stat_result] = {}
"""The lock files that this process holds, by folder."""


class InUse(CheckpointError):
    """Another process has the folder."""


class FolderGone(CheckpointError):
    """The folder of a run was removed or replaced while the run was going on."""


def create(folder: Path) -> None:
    """Create a folder for files of a run, unless it is there; never again one that this process holds and was removed.

    Raises:
        FolderGone: where it was removed or replaced while this process held it.
    """
    if (held := _locks.get(folder.resolve())) is None:
        folder.mkdir(parents=True, exist_ok=True)
    elif not _is(folder / _LOCK, held):
        raise FolderGone(
            f"{folder} was removed or replaced while the run was going on, so nothing more can be saved there: run again, "
            "or put the folder back and resume"
        )


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[bool]:
    """Lock a folder against other processes, and remove files that a killed process has left half written.

    The system releases the lock when the process ends, however it ends. The same thread may lock a folder again. A folder
    that is empty at the end is removed if it was created here.

    Args:
        folder: to lock.
        patience: seconds to wait for a process that has it.

    Yields whether the folder was created here.

    Raises:
        InUse: where another process has it.
        CheckpointError: where it cannot be written.
    """
    with writable([folder]):
        created = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder.resolve()
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
            _locks[path] = (path / _LOCK).stat()
            _clear(folder)
        yield created
    finally:
        try:
            if first and _is(path / _LOCK, _locks.pop(path)):
                (path / _LOCK).unlink()
                if created:
                    path.rmdir()
        except OSError:  # files are left in the folder, or the system does not remove one that is open
            pass
        finally:
            lock.release()


def in_use(folder: Path) -> bool:
    """Return whether another process has the lock of a folder."""
    if not (folder / _LOCK).exists():
        return False
    try:
        with locked(folder):
            return False
    except InUse:
        return True


def _acquire(lock: BaseFileLock, path: Path, patience: float) -> None:
    """Acquire a lock within some seconds, or not at all.

    Whoever holds a lock removes its file before releasing it, so a file that was opened before and locked after that is
    nobody's any more: another process may hold a new one of that name.

    Raises:
        Timeout: where another process holds it.
    """
    for _ in range(100):
        lock.acquire(timeout=patience, poll_interval=0.02)
        number = lock._context.lock_file_fd  # what was locked; there is no public name for it
        if lock.lock_counter > 1 or number is None or _is(path, os.fstat(number)):
            return
        lock.release()
    raise Timeout(str(path))


def _is(path: Path, file: os.stat_result) -> bool:
    """Return whether a path still leads to a file."""
    with suppress(OSError):
        return os.path.samestat(path.stat(), file)
    return False


def _clear(folder: Path) -> None:
    """Remove files that were being written when a process was killed."""
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    for pattern in (".tmp*", ".*.part"):
        for left in folder.glob(pattern):
            left.unlink(missing_ok=True)


@contextmanager
def writable(paths: Iterable[Path]) -> Iterator[None]:
    """Name the files that cannot be written in place of an error of the system."""
    try:
        yield
    except OSError as error:
        names = ", ".join(str(path) for path in paths)
        raise CheckpointError(
            f"cannot write {names}: {error}. What was there before is unchanged: free some space or give another folder"
        ) from error
