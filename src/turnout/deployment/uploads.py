"""Reports on their way: received into files, from where an earlier attempt ended."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

from starlette.requests import ClientDisconnect, Request

from turnout.deployment.requests import CHUNK, number
from turnout.deployment.service import Service
from turnout.deployment.verdicts import Refused


class Uploads:
    """The reports that clients are sending, one unfinished one of each.

    Args:
        service: whose they are.
        slowest: seconds that the next piece of a body may take.
    """

    def __init__(self, service: Service, slowest: float) -> None:
        self._service, self._slowest = service, slowest
        self._uploads: dict[int, object] = {}
        self._parts: dict[int, Path] = {}

    async def received(self, request: Request, client: int, task: int, digest: str, limit: int) -> Path:
        """Receive a report into a file, from where an earlier attempt ended; return it when it is whole.

        Raises:
            Refused: for one that is too large, does not go on where the last one ended, or was damaged.
        """
        offset, length = _announced(request, limit)
        me = self._uploads[client] = object()
        part = self._part(client, f"{client}-{task}-{digest}.part", offset)
        stream = request.stream()
        file = os.open(part, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            os.ftruncate(file, offset)
            hashed, size = _hashed(file), offset
            while size < length:
                try:
                    piece = await asyncio.wait_for(anext(stream, b""), self._slowest)
                except ClientDisconnect:
                    raise Refused(400, "the connection was cut") from None
                if self._uploads.get(client) is not me:
                    raise Refused(409, "this report is being sent once more", offset=size)
                if not piece:
                    break
                size += len(piece)
                if size > length:
                    part.unlink(missing_ok=True)
                    raise Refused(413, f"the report has more than the {length:,} bytes that it was said to have")
                os.write(file, piece)
                hashed.update(piece)
                self._service.heard(client)
        finally:
            await stream.aclose()
            os.close(file)
            if self._uploads.get(client) is me:
                del self._uploads[client]
        if size < length:
            raise Refused(409, "a piece of the report is missing", offset=size)
        if hashed.hexdigest() != digest:
            part.unlink(missing_ok=True)
            raise Refused(409, "the report was damaged on its way", offset=0)
        return part

    def _part(self, client: int, name: str, offset: int) -> Path:
        """Return the file of a client's report; what it had begun of another one is deleted.

        Raises:
            Refused: where the file does not reach to where this piece begins.
        """
        part = self._service.store.incoming / name
        if (other := self._parts.get(client)) is not None and other != part:
            other.unlink(missing_ok=True)
        self._parts[client] = part
        there = part.stat().st_size if part.exists() else 0
        if offset > there:
            raise Refused(409, "the report goes on somewhere else", offset=there)
        return part


def _hashed(file: int) -> hashlib._Hash:
    """Return the digest of what a file holds, to be gone on with."""
    found = hashlib.sha256()
    while piece := os.read(file, CHUNK):
        found.update(piece)
    return found


def _announced(request: Request, limit: int) -> tuple[int, int]:
    """Return where a piece of a report begins, and how long the report is, as the headers say.

    Raises:
        Refused: for a report that is too large, or a piece that is longer than the report.
    """
    offset, length = number(request, "upload-offset") or 0, number(request, "upload-length")
    coming = number(request, "content-length") or 0
    length = offset + coming if length is None else length
    if not 0 < length <= limit or offset + coming > length:
        raise Refused(413, f"a report on this task has at most {limit:,} bytes, not {max(length, offset + coming):,}")
    return offset, length
