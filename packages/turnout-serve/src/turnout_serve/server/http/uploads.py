"""Receive uploads of reports, which can be resumed; each attempt writes a file of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from turnout.core.system import BINARY
from turnout_serve.server.http.limits import Limits
from turnout_serve.server.http.requests import CHUNK, SLOW, announced, other_length, piece_of, too_large
from turnout_serve.server.service import Service
from turnout_serve.server.verdicts import Refused

_AT_ONCE = 4  # uploads of one client: a proxy may retry while the server still works on the first attempt
_ATTEMPTS = 32  # to read an upload of one task from an object store
_NAME = re.compile(r"([0-9]{1,18})-([0-9]{1,18})-([0-9a-f]{64})-[0-9a-f]{16}\.part")


@dataclass(eq=False)
class Part:
    """The received bytes of one attempt to send a report.

    Attributes:
        path: a file that only this attempt writes.
        task, digest: task and digest of the report.
        size: number of bytes.
        busy: True while a request uses it.
    """

    path: Path
    task: int
    digest: str
    size: int = 0
    busy: bool = True


class Progress:
    """Rate of an upload: seconds spent on it, and bytes received.

    Args:
        limits: the minimum rate, and the time at the start for which there is none.
        clock: seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self.seconds, self.received = 0.0, 0
        self._since = clock()

    def begin(self) -> None:
        """Continue to count time, after a pause between two attempts."""
        self._since = self._clock()

    def add(self, nbytes: int) -> None:
        """Count the bytes and the time since the last call."""
        now = self._clock()
        self.seconds, self._since = self.seconds + now - self._since, now
        self.received += nbytes

    @property
    def is_behind(self) -> bool:
        """True where the upload is slower than the limits allow."""
        return self.seconds > self._limits.stall_seconds + self.received / self._limits.upload_rate


class Uploads:
    """The uploads of all clients.

    Each attempt writes its own file, which is handed over when it is complete and never written or deleted here afterwards.
    So two requests at once, as a proxy that retries sends them, cannot change a report after it was checked.

    Args:
        service: renews leases.
        limits: limits of rate and time.
        clock: seconds; for tests.
    """

    def __init__(self, service: Service, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._service, self._limits, self._clock = service, limits, clock
        self._files, self._folder = service.store.files, service.store.files.incoming
        self._attempts: dict[int, tuple[int, int]] = {}  # by client: a task, and the number of reads of its upload
        self._parts: dict[int, list[Part]] = {}
        self._progress: dict[int, tuple[int, Progress]] = {}  # by client: a task, and all attempts to report on it
        for path in self._folder.iterdir():
            if (name := _NAME.fullmatch(path.name)) is not None:
                part = Part(path, int(name[2]), name[3], path.stat().st_size, busy=False)
                self._parts.setdefault(int(name[1]), []).append(part)

    def offset(self, client: int, task: int) -> int:
        """Return the number of received bytes of a report, where an upload can be resumed."""
        return max((part.size for part in self._parts.get(client, ()) if part.task == task), default=0)

    @asynccontextmanager
    async def received(self, request: Request, client: int, task: int, digest: str, limit: int) -> AsyncIterator[Path]:
        """Receive a report; yield its file once it is complete and has the digest. The file then belongs to the caller.

        Raises:
            Refused: if a report is too large, too slow or damaged, or does not continue where the last attempt ended.
        """
        offset, exact = announced(request, limit)
        length = limit if exact is None else exact
        if self._files.takes_uploads and offset == length:
            async with self._uploaded(client, task, digest, length) as path:
                yield path
            return
        part, source = self._begin(client, task, digest, offset)
        whole = False
        try:
            hashed = hashlib.sha256()
            if source is not None:
                resume = lambda: _resume(source, part, offset, hashed)  # noqa: E731
                await asyncio.to_thread(resume) if offset > CHUNK else resume()
            await self._append(request, client, part, length, hashed, to_end=exact is None)
            if part.size < length and exact is not None:
                raise Refused(409, "a piece of the report is missing", offset=part.size)
            whole = hashed.hexdigest() == digest
            if not whole:
                part.size = 0
                raise Refused(409, "the report was damaged on its way", offset=0)
            yield part.path
        finally:
            self._end(client, part, whole)

    @asynccontextmanager
    async def _uploaded(self, client: int, task: int, digest: str, length: int) -> AsyncIterator[Path]:
        """Yield the file of a report that was uploaded to the object store; the upload is deleted afterwards.

        Raises:
            Refused: if there is no such upload, or the server has read it too often, for it is read whole each time.
        """
        before, attempts = self._attempts.get(client, (task, 0))
        attempts = attempts + 1 if before == task else 1
        self._attempts[client] = task, attempts
        if attempts > _ATTEMPTS:
            raise Refused(429, "the report was damaged too often: send it to the server itself", seconds=60.0)
        self._service.timeouts.renew(client)
        path = await asyncio.to_thread(self._files.receive, client, task, digest, length)
        try:
            yield path
        finally:
            await asyncio.to_thread(self._files.discard, path, client)

    def _begin(self, client: int, task: int, digest: str, offset: int) -> tuple[Part, Part | None]:
        """Create the file of an attempt; return it, and the earlier attempt that its first bytes are copied from.

        Raises:
            Refused: if no earlier attempt has so many bytes, or too many are in progress.
        """
        parts = self._parts.setdefault(client, [])
        if sum(part.busy for part in parts) >= _AT_ONCE:
            raise Refused(429, f"{_AT_ONCE} uploads of this client are under way: wait for them", seconds=1.0)
        earlier = [part for part in parts if (part.task, part.digest) == (task, digest)]
        source = max(earlier, key=lambda part: part.size, default=None)
        received = 0 if source is None else source.size
        if offset > received:
            raise Refused(409, "the report continues at another offset", offset=received)
        part = Part(self._folder / f"{client}-{task}-{digest}-{secrets.token_hex(8)}.part", task, digest)
        os.close(os.open(part.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | BINARY, 0o600))
        parts.append(part)
        if self._progress.get(client, (None,))[0] != task:
            self._progress[client] = task, Progress(self._limits, self._clock)
        return part, source if offset else None

    async def _append(
        self, request: Request, client: int, part: Part, length: int, hashed: hashlib._Hash, *, to_end: bool
    ) -> None:
        """Append the pieces of a body to the file.

        Raises:
            Refused: if the connection is cut, too slow, or sends too much.
        """
        attempt, of_task = Progress(self._limits, self._clock), self._progress[client][1]
        of_task.begin()
        stream = request.stream()
        try:
            # Of a report without an announced length, even a full one is read to its end, which may lie behind the limit.
            while (part.size < length or to_end) and (piece := await piece_of(stream, self._limits.stall_seconds)):
                if (size := part.size + len(piece)) > length:
                    part.size = 0
                    raise (too_large if to_end else other_length)(length, f"{size:,} or more")
                _write(part.path, piece)
                hashed.update(piece)
                part.size += len(piece)
                attempt.add(len(piece))
                of_task.add(len(piece))
                if attempt.is_behind or attempt.seconds > self._limits.upload_seconds:
                    raise Refused(408, SLOW)
                # A slow upload does not renew the lease, nor does one that sends the same bytes again and again.
                if not of_task.is_behind and of_task.received <= 2 * length:
                    self._service.timeouts.renew(client)
        finally:
            of_task.add(0)
            await stream.aclose()

    def _end(self, client: int, part: Part, whole: bool) -> None:
        """End an attempt; of all attempts that no request uses, keep the longest one for an open task."""
        parts, part.busy = self._parts[client], False
        if whole:
            parts.remove(part)
        idle = [other for other in parts if not other.busy]
        longest = None if whole else self._longest(client, idle)
        for other in idle:
            if other is not longest:
                parts.remove(other)
                other.path.unlink(missing_ok=True)
        if not parts:
            del self._parts[client]

    def _longest(self, client: int, parts: list[Part]) -> Part | None:
        """Return the longest attempt to report on the last task that is still open; None without one."""
        is_open = self._service.driver.tasks.get
        useful = [part for part in parts if part.size and is_open(client, part.task) is not None]
        return max(useful, key=lambda part: (part.task, part.size), default=None)


def _resume(source: Part, part: Part, offset: int, hashed: hashlib._Hash) -> None:
    """Copy the first `offset` bytes of an earlier attempt.

    Raises:
        Refused: if they were deleted.
    """
    try:
        with source.path.open("rb") as file:
            while part.size < offset and (piece := file.read(min(CHUNK, offset - part.size))):
                _write(part.path, piece)
                hashed.update(piece)
                part.size += len(piece)
    except FileNotFoundError:
        part.size = 0
    if part.size < offset:
        raise Refused(409, "the report continues at another offset", offset=part.size)


def _write(path: Path, piece: bytes) -> None:
    """Append a piece to a file. It is closed in between, so slow uploads hold no file descriptors."""
    file, rest = os.open(path, os.O_WRONLY | os.O_APPEND | BINARY), memoryview(piece)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)
