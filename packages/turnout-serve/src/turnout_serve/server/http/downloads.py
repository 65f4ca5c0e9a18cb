"""Download models: immutable files, whole or in part."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from turnout_serve.server.http.requests import DIGEST
from turnout_serve.server.http.routes import BINARY, route
from turnout_serve.server.run.publication import CurrentModel
from turnout_serve.server.service import Service
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.format import repr_digest

_FILE = {
    200: (BINARY, "The whole file, safetensors."),
    206: (BINARY, "The range that was asked for."),
    304: ("", "The client has this file already, as its header `If-None-Match` says."),
    416: ("", "The file ends before the range begins."),
}
_RANGE = {"range": (r"^bytes=[0-9]{1,18}-[0-9]{0,18}$", False), "if-range": (r'^"[0-9a-f]{64}"$', False)}
_PIECE = 64 * 1024  # bytes that a client has to read within `Limits.write_seconds`


class ModelRoutes:
    """The endpoints of models.

    Args:
        service: answers the requests.
    """

    def __init__(self, service: Service) -> None:
        self._files, self._run, driver = service.store.files, service.run, service.driver
        self._current = CurrentModel(service.store.folder / "exports", driver.publication, driver.setting.trained)

    @route("GET", "/v1/models/{digest}", {**_FILE, 404: "There is no such model, or no longer."}, headers=_RANGE)
    async def model(self, request: Request, digest: str) -> Response:
        """Download a model."""
        path = self._files.model(digest)
        if not DIGEST.fullmatch(digest) or not path.is_file():
            raise Refused(404, "there is no such model, or no longer")
        return download(request, path, digest)

    @route(
        "GET",
        "/v1/model",
        {**_FILE, 404: "Training has not begun."},
        headers=_RANGE,
        sends=("etag", "repr-digest", "model-version", "content-disposition"),
    )
    async def current(self, request: Request) -> Response:
        """Download the present model as named tensors."""
        if (export := await asyncio.to_thread(self._current.file)) is None:
            raise Refused(404, "there is no model yet: training has not begun")
        response = download(request, export.path, export.digest)
        response.headers["cache-control"] = "no-cache"
        response.headers["repr-digest"] = repr_digest(export.digest)
        response.headers["model-version"] = str(export.version)
        name = f"{self._run}-step-{export.version}.safetensors"  # of the file that `curl -O -J` writes
        response.headers["content-disposition"] = f'attachment; filename="{name}"'
        return response


def download(request: Request, path: Path, digest: str) -> Response:
    """Return the answer to a request for an immutable file, which honors Range, If-Range and If-None-Match."""
    headers = {"etag": f'"{digest}"', "cache-control": "public, max-age=31536000, immutable", "accept-ranges": "bytes"}
    if f'"{digest}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    size = path.stat().st_size
    # The range of another file, which a client has begun to download before there was this one, is not continued.
    is_same = request.headers.get("if-range", headers["etag"]) == headers["etag"]
    requested = _range(request.headers.get("range", ""), size) if is_same else None
    start, stop = requested or (0, size)
    if requested is not None:
        if start >= stop:
            return Response(status_code=416, headers={**headers, "content-range": f"bytes */{size}"})
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    headers["content-length"] = str(stop - start)
    code = 200 if requested is None else 206
    return StreamingResponse(_pieces(path, start, stop), code, headers, "application/octet-stream")


def _range(text: str, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end of a requested range (RFC 9110, 14.1.2); None for a header that is ignored.

    Ignored are invalid ranges, other units than bytes, and several ranges at once.

    >>> _range("bytes=2-5", 10), _range("bytes=8-", 10), _range("bytes=-3", 10), _range("bytes=5-3", 10)
    ((2, 6), (8, 10), (7, 10), None)
    """
    match = re.fullmatch(r"bytes=[ \t]*([0-9]{0,99})-([0-9]{0,99})[ \t]*", text, re.IGNORECASE)
    if match is None or match.group(1, 2) == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    if last and int(last) < int(first):
        return None
    return int(first), min(int(last) + 1, size) if last else size


async def _pieces(path: Path, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yield a part of a file piece by piece. The file is closed in between, so slow clients hold no file descriptors.

    Raises:
        OSError: if it was deleted, because no task needs this model any more.
    """
    while start < stop:
        with path.open("rb") as file:
            file.seek(start)
            piece = file.read(min(_PIECE, stop - start))
        start += len(piece)
        yield piece
