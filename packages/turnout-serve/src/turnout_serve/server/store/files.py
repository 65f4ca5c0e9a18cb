"""Models and reports of a run as files that are named by their digest and never change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from turnout.core.checks import CheckpointError
from turnout.core.system import move, sync
from turnout.core.types import State
from turnout.record.contents import Irregular, open_regular
from turnout_serve.wire.format import LARGE, encode, encode_file

Result = TypeVar("Result")

_DAMAGED = "is damaged: its digest is another one"
_WRITERS = 16  # files that are synced at a time, which a disk does in fewer writes


class ReportLost(CheckpointError):
    """A report that the journal names is missing or damaged."""


class Files:
    """The models and reports of a run in its folder, which clients reach through the server.

    `turnout_serve.server.store.objects.Objects` has them in an object store as well.

    Args:
        folder: folder of the run.
        until_done: calls a function again until it succeeds; see `turnout_serve.server.store.store.Store.until_done`.
        read_only: True where nothing is written or deleted.

    Attributes:
        models, reports: folders of files.
        incoming: folder of uploads.
        close: function that stops the threads.
    """

    takes_uploads = False
    """True where clients may upload reports to an object store."""

    def __init__(
        self, folder: Path, until_done: Callable[[Callable[[], object]], None], read_only: bool = False
    ) -> None:
        self.models, self.reports, self.incoming = folder / "models", folder / "reports", folder / "incoming"
        for path in (self.models, self.reports, self.incoming):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._until_done, self.read_only = until_done, read_only
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="sync")
        self.close = self._pool.shutdown

    def model(self, digest: str) -> Path:
        """Return the path of a model."""
        return self.models / f"{digest}.safetensors"

    def report(self, digest: str) -> Path:
        """Return the path of a report."""
        return self.reports / f"{digest}.safetensors"

    def write_model(self, tensors: State) -> tuple[str, int]:
        """Write a model to a file without a copy in memory; return its digest and size."""
        if self.read_only:
            body = encode(tensors)
            return hashlib.sha256(body).hexdigest(), len(body)
        written = list[tuple[str, int]]()

        def write() -> None:
            part = self.models / "next.part"
            part.unlink(missing_ok=True)  # it may be a link to another file, in a folder from elsewhere
            encode_file(tensors, part)
            with part.open("rb") as file:
                digest, size = hashlib.file_digest(file, "sha256").hexdigest(), part.stat().st_size
            sync(part)
            move(part, self.model(digest))
            written.append((digest, size))

        self._until_done(write)
        return written[-1]

    def keep_models(self, digests: Container[str]) -> None:
        """Delete all models but these."""
        if not self.read_only:
            _delete_all_but(self.models, digests)

    def keep_reports(self, digests: Container[str]) -> None:
        """Delete all reports but these."""
        _delete_all_but(self.reports, digests)

    def has_reports(self) -> bool:
        """Return whether there is any report."""
        return any(self.reports.iterdir())

    def read_report(self, digest: str) -> bytes:
        """Read a report and verify its digest. While the file is there and cannot be read, it is tried again.

        Raises:
            ReportLost: if it is missing or damaged.
        """
        path = self._fetched(digest)
        if (mapped := self.report_file(digest)) is not None:  # verified before so much of it is in memory
            return mapped.read_bytes()

        def read() -> bytes:
            with open_regular(path) as file:
                return file.read(LARGE)

        body = self._read_of(path, read)
        if hashlib.sha256(body).hexdigest() != digest:
            raise _lost(path, _DAMAGED)
        return body

    def check_report(self, digest: str, size: int | None) -> None:
        """Check the file of a report.

        Args:
            digest: its digest.
            size: its size in bytes; None where it is not known.

        Raises:
            ReportLost: if it is missing or damaged.
        """
        path = self._fetched(digest)
        if size is not None and path.is_file() and path.stat().st_size != size:  # before all of it is read
            raise _lost(path, _DAMAGED)
        if self._read_of(path, lambda: self.damaged([(path, digest)])):
            raise _lost(path, _DAMAGED if path.exists() else "cannot be read: there is no such file")

    def report_file(self, digest: str) -> Path | None:
        """Return the file of a large report after verifying its digest; None for a small one.

        Raises:
            ReportLost: if it is damaged.
        """
        path = self._fetched(digest)
        with suppress(FileNotFoundError):
            if path.stat().st_size >= LARGE:
                if self._read_of(path, lambda: self.damaged([(path, digest)])):
                    raise _lost(path, _DAMAGED)
                return path
        return None

    def _read_of(self, path: Path, read: Callable[[], Result]) -> Result:
        """Return what a function reads from a file, and call it again if the disk fails: to drop a report would lose it.

        Raises:
            ReportLost: if there is no such file.
        """
        results, missing = list[Result](), list[OSError | Irregular]()

        def attempt() -> None:
            try:
                results.append(read())
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError, Irregular) as error:
                missing.append(error)

        self._until_done(attempt)
        if missing:
            raise _lost(path, f"cannot be read: {missing[0]}") from missing[0]
        return results[0]

    def damaged(self, reports: Sequence[tuple[Path, str]]) -> set[Path]:
        """Return the files that differ from their digest; one that `bring` has moved is looked up where it is now."""

        def differs(report: tuple[Path, str]) -> bool:
            path, digest = report
            try:
                with open_regular(path if path.exists() else self.report(digest)) as file:
                    return hashlib.file_digest(file, "sha256").hexdigest() != digest
            except FileNotFoundError:
                return True

        results = self._map(differs, reports)
        return {path for (path, _), differs in zip(reports, results, strict=True) if differs}

    def bring(self, arrived: Iterable[tuple[Path, str]]) -> None:
        """Sync files of reports to the disk, and move each to the path of its digest."""
        paths = [(part, self.report(digest)) for part, digest in arrived]
        # An attempt that failed may have moved some. Files are synced before and folders after the moves, so that a path
        # never leads to a part of a report.
        waiting = [(part, path) for part, path in paths if part.exists()]
        self._map(sync, [part for part, _ in waiting])
        for part, path in waiting:
            move(part, path)
        for directory in {path.parent for _, path in waiting}:
            sync(directory)

    def clear_incoming(self, tasks: Mapping[str, str]) -> None:
        """Delete all uploads but those for these tasks, a client by task."""
        for part in self.incoming.iterdir():
            if task_of_upload(part.name) not in tasks:
                part.unlink()

    def links(self, client: int, model: str, size: int, limit: int) -> dict[str, str]:
        """Return links to an object store for a task: to its model of `size` bytes, and for a report of at most `limit`."""
        return {}

    def receive(self, client: int, task: int, digest: str, length: int) -> Path:
        """Take an upload from an object store."""
        raise NotImplementedError

    def admit(self, part: Path, digest: str) -> None:
        """Keep a checked report in an object store before the journal names it."""

    def discard(self, part: Path, client: int) -> None:
        """Delete the rest of an upload from an object store."""

    def release(self, digests: Iterable[str]) -> None:
        """Release the copies of reports in an object store that later steps do not read."""

    def _map(self, function: Callable[[Any], Any], files: Sequence[Any]) -> list[Any]:
        """Apply a function to files side by side, or to a single one in this thread, which is faster."""
        return list(self._pool.map(function, files) if len(files) > 1 else map(function, files))

    def _fetched(self, digest: str) -> Path:
        """Return the path of a report before it is read."""
        return self.report(digest)


def task_of_upload(name: str) -> str:
    """Return the task in the name of an upload.

    >>> task_of_upload("3-17-digest-nonce.part"), task_of_upload("3-17"), task_of_upload("other")
    ('17', '17', '')
    """
    return "".join(name.split("-")[1:2])


def _lost(path: Path, why: object) -> ReportLost:
    return ReportLost(f"the journal refers to {path}, which {why}")


def _delete_all_but(folder: Path, digests: Container[str]) -> None:
    """Delete all files but those of some digests; a later call deletes what cannot be deleted now."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.stem not in digests:
                path.unlink(missing_ok=True)
