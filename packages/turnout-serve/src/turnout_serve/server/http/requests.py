"""Read the parts of a request: its body, headers and path, and the announcement and the pieces of a report."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncGenerator
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.bodies import Body
from turnout_serve.wire.edge import read_object

CHUNK = 256 * 1024
DIGEST = re.compile(r"[0-9a-f]{64}")
SLOW = "the report comes too slowly: send what is missing later"
AnyBody = TypeVar("AnyBody", bound=Body)

_JSON = 16 * 1024  # bytes of the largest JSON body
_NUMBER = re.compile(r"[0-9]{1,15}")


async def body_of(request: Request, kind: type[AnyBody], seconds: float) -> AnyBody:
    """Read a JSON body; an empty one is an empty object.

    Args:
        request: request of the client.
        kind: type of the body.
        seconds: limit of time.

    Raises:
        Refused: if it is too large or too slow.
        Malformed: if it is something else.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > _JSON:
                    raise Refused(413, f"a body here has at most {_JSON} bytes")
    except TimeoutError:
        raise Refused(408, f"the body did not come within {seconds:g} seconds") from None
    return kind.read(read_object(body))


def number_in_path(request: Request, name: str) -> int:
    """Return a whole number in the path of a request.

    Raises:
        Refused: if it is anything else.
    """
    digits = request.path_params[name]
    if not _NUMBER.fullmatch(digits):
        raise Refused(404, f"there is no such {name}")
    return int(digits)


def query_number(request: Request, name: str) -> int:
    """Return a whole number of the query of a request; 0 without one.

    Raises:
        Refused: if it is anything else.
    """
    return _whole(request.query_params.get(name, "0"), name)


def header(request: Request, name: str) -> str | None:
    """Return a header that must not be repeated.

    Raises:
        Refused: if it is given more than once.
    """
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise Refused(400, f"{name} is given {len(values)} times, needed once")
    return values[0] if values else None


def header_number(request: Request, name: str) -> int | None:
    """Return a header that is a whole number; None without it.

    Raises:
        Refused: if it is anything else.
    """
    digits = header(request, name)
    return None if digits is None else _whole(digits, name)


def _whole(digits: str, name: str) -> int:
    if not _NUMBER.fullmatch(digits):
        raise Refused(400, f"{name} is a whole number of at most 15 digits")
    return int(digits)


def digest_of(request: Request) -> str:
    """Return the SHA-256 of a report, in hexadecimal digits, as the header Repr-Digest gives it.

    Raises:
        Refused: if it gives none.
    """
    match = re.search(r"sha-256=:([A-Za-z0-9+/=]{44}):", (header(request, "repr-digest") or "")[:1000])
    try:
        digest = base64.b64decode(match[1], validate=True).hex() if match else ""
    except binascii.Error:
        digest = ""
    if not DIGEST.fullmatch(digest):
        raise Refused(400, "a report comes with the header Repr-Digest: sha-256=:BASE64:")
    return digest


def announced(request: Request, limit: int) -> tuple[int, int | None]:
    """Return the offset of a piece of a report, and the length of the report, from the headers.

    The length of a report that is sent in chunks, without Upload-Length, is that of its body: None.

    Raises:
        Refused: if a report is empty or too large, if a piece ends behind the report, or if there is no length at all.
    """
    offset, length = header_number(request, "upload-offset") or 0, header_number(request, "upload-length")
    if length is None and header(request, "content-length") is None:
        if "chunked" not in (header(request, "transfer-encoding") or "").lower():
            raise Refused(411, "a report comes with Content-Length, or in chunks (Transfer-Encoding: chunked)")
        return offset, None
    coming = header_number(request, "content-length") or 0
    length = offset + coming if length is None else length
    if length > limit:
        raise too_large(limit, f"{length:,}")
    if not length:
        raise Refused(400, "the report is empty: send its bytes, with their number in Upload-Length")
    if offset + coming > length:
        raise other_length(length, f"{offset + coming:,}")
    return offset, length


def too_large(limit: int, size: str) -> Refused:
    """Return the refusal of a report that is larger than any on its task."""
    return Refused(413, f"a report on this task has at most {limit:,} bytes, not {size}")


def other_length(length: int, size: str) -> Refused:
    """Return the refusal of a report that is longer than was announced."""
    return Refused(400, f"Upload-Length says {length:,} bytes, and the report has {size}: send the length of all of it")


async def piece_of(stream: AsyncGenerator[bytes], seconds: float) -> bytes:
    """Return the next piece of a report, empty at its end.

    Raises:
        Refused: if it takes longer than so many seconds, or the connection is closed.
    """
    try:
        return await asyncio.wait_for(anext(stream, b""), seconds)
    except ClientDisconnect:
        raise Refused(400, "the connection was cut") from None
    except TimeoutError:
        raise Refused(408, SLOW) from None
