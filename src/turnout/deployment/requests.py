"""What is read of a request: who sends it, its body, its numbers; and how answers are written."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout.deployment.limits import RateLimit
from turnout.deployment.service import Service
from turnout.deployment.verdicts import Refused, Verdict

CHUNK = 256 * 1024
DIGEST = re.compile(r"[0-9a-f]{64}")
_JSON = 16 * 1024  # bytes of the largest JSON body


class Gate:
    """Who asks, and whether not too often.

    Args:
        service: which knows the clients.
        rate: requests a second of each client, and a fifth of that of each address without a token; 0 is no limit.
    """

    def __init__(self, service: Service, rate: float) -> None:
        self._service = service
        self._limit, self._strangers = RateLimit(rate, 4 * rate), RateLimit(rate / 5, 2 * rate)

    def client(self, request: Request) -> int:
        """Return who asks.

        Raises:
            Refused: where nobody knows the token, or it asks too often.
        """
        client = self._service.client_of(self.token(request))
        if client is None:
            self.stranger(request)
            raise Refused(401, "this server does not know the token: enrol first")
        self._slow_down(self._limit, client)
        return client

    def token(self, request: Request) -> str:
        """Return the token of a request.

        Raises:
            Refused: where it has none.
        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not 32 <= len(token) <= 200:
            self.stranger(request)
            raise Refused(401, "this takes a token of 32 to 200 characters: Authorization: Bearer TOKEN")
        return token

    @staticmethod
    def _slow_down(limit: RateLimit, who: object) -> None:
        if wait := limit.wait(who):
            raise Refused(429, f"too many requests: try again in {wait:.1f} seconds", seconds=round(wait, 1))

    def stranger(self, request: Request) -> None:
        """Count a request that needs no token, or comes without.

        Raises:
            Refused: where the address asks too often.
        """
        self._slow_down(self._strangers, request.client.host if request.client else "")


def answer(verdict: Verdict) -> Response:
    """Write an answer."""
    headers = {"retry-after": str(int(verdict.body["seconds"]) + 1)} if verdict.status == 429 else None
    return JSONResponse(verdict.body, verdict.status, headers)


async def body_of(request: Request) -> dict[str, Any]:
    """Read a body of plain values.

    Raises:
        Refused: where it is something else, or too large.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _JSON:
            raise Refused(413, f"a body here has at most {_JSON} bytes")
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        raise Refused(400, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise Refused(400, "the body is no JSON object")
    return found


def task_of(request: Request) -> int:
    """Return the number of the task that a request is about.

    Raises:
        Refused: for a number that no task can have.
    """
    task = int(request.path_params["task"])
    if task >= 1 << 53:
        raise Refused(404, "there is no such task")
    return task


def number(request: Request, name: str) -> int | None:
    """Read a header that is a whole number."""
    text = request.headers.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,15}", text):
        raise Refused(400, f"{name} is a whole number")
    return int(text)


def digest_named(header: str) -> str:
    """Return the SHA-256 of a report, in hexadecimal digits, as the header Repr-Digest gives it.

    Raises:
        Refused: where it gives none.
    """
    found = re.search(r"sha-256=:([A-Za-z0-9+/=]{44}):", header)
    try:
        digest = base64.b64decode(found[1], validate=True).hex() if found else ""
    except binascii.Error:
        digest = ""
    if not DIGEST.fullmatch(digest):
        raise Refused(400, "a report comes with the header Repr-Digest: sha-256=:BASE64:")
    return digest


async def pieces(path: Path, start: int, stop: int) -> AsyncIterator[bytes]:
    """Read a stretch of a file."""
    with path.open("rb") as file:
        file.seek(start)
        while start < stop:
            piece = file.read(min(CHUNK, stop - start))
            if not piece:
                return
            start += len(piece)
            yield piece
