"""Downloads of models: immutable files, whole or from where an earlier attempt ended."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

_PIECE = 64 * 1024  # bytes that a client has to read within `Limits.write_seconds`


def download(request: Request, path: Path, digest: str) -> Response:
    """Answer a request for a file of this digest: all of it, the range that is asked for, or that it has not changed."""
    headers = {
        "etag": f'"{digest}"',
        "cache-control": "public, max-age=31536000, immutable",
        "accept-ranges": "bytes",
    }
    if f'"{digest}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    size = path.stat().st_size
    start, stop, code = 0, size, 200
    if (requested := re.fullmatch(r"bytes=([0-9]{1,18})-([0-9]{0,18})", request.headers.get("range", ""))) is not None:
        start, stop, code = int(requested[1]), min(int(requested[2] or size) + 1, size), 206
        if start >= stop:
            return Response(status_code=416, headers={**headers, "content-range": f"bytes */{size}"})
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    headers["content-length"] = str(stop - start)
    return StreamingResponse(_pieces(path, start, stop), code, headers, "application/octet-stream")


async def _pieces(path: Path, start: int, stop: int) -> AsyncIterator[bytes]:
    """Read a stretch of a file, which is open only meanwhile: slow clients hold no file descriptors.

    Raises:
        OSError: where it was deleted, because no task needs this model any more.
    """
    while start < stop:
        with path.open("rb") as file:
            file.seek(start)
            piece = file.read(min(_PIECE, stop - start))
        start += len(piece)
        yield piece
