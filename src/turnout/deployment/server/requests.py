"""Readers for the parts of a request: who sends it, its body, its headers, its address."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from turnout.deployment.server.limits import RateLimit, network_of
from turnout.deployment.server.proxies import Networks
from turnout.deployment.server.service import Service
from turnout.deployment.server.store import StoreUnavailable
from turnout.deployment.server.verdicts import Refused, Verdict, hashed
from turnout.deployment.wire.administrator import TOKEN
from turnout.deployment.wire.edge import Malformed, read_object

log = logging.getLogger("turnout.http")

CHUNK = 256 * 1024
DIGEST = re.compile(r"[0-9a-f]{64}")
_JSON = 16 * 1024  # bytes of the largest JSON body
_NUMBER = re.compile(r"[0-9]{1,15}")


class Strangers:
    """Requests without a token that is known, and whether an address sends too many.

    Args:
        rate: five times as many requests a second as there may be of each address; 0 is no limit.
        trusted: addresses that are not counted.
    """

    def __init__(self, rate: float, trusted: Networks | None = None) -> None:
        self._strangers, self._trusted = RateLimit(rate / 5, 2 * rate), trusted or Networks()

    def token(self, request: Request) -> str:
        """Return the token of a request.

        Raises:
            Refused: where it has none.
        """
        kind, _, token = (header(request, "authorization") or "").partition(" ")
        if kind.lower() != "bearer" or not TOKEN.fullmatch(token):
            self.stranger(request)
            raise Refused(
                401, "this takes a token of 32 to 200 letters, digits or ._~+/=-: Authorization: Bearer TOKEN"
            )
        return token

    def stranger(self, request: Request) -> None:
        """Count a request that needs no token, or comes without.

        Raises:
            Refused: where the address asks too often.
        """
        host = request.client.host if request.client else ""
        if host not in self._trusted:
            self._slow_down(self._strangers, network_of(host) or host)

    @staticmethod
    def _slow_down(limit: RateLimit, peer: Hashable, what: str = "requests", instead: str = "") -> None:
        if wait := limit.wait(peer):
            raise Refused(429, f"too many {what}: try again in {wait:.1f} seconds{instead}", seconds=round(wait, 1))


class Gate(Strangers):
    """Admit requests by their token, at a limited rate.

    Args:
        service: which knows the clients.
        rate: requests a second of each client, and a fifth of that of each address without a token; 0 is no limit.
        administrator: the hash of the administrator's token; ``""`` is nobody's.
        enrolments: new clients an hour of each address, and as many at once; 0 is no limit.
        trusted: addresses that are counted neither as newcomers nor as strangers.
    """

    def __init__(
        self,
        service: Service,
        rate: float,
        administrator: str = "",
        enrolments: int = 0,
        trusted: Networks | None = None,
    ) -> None:
        super().__init__(rate, trusted)
        self._service, self._administrator = service, administrator
        self._newcomers, self._limit = RateLimit(enrolments / 3600, enrolments), RateLimit(rate, 4 * rate)

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

    def administrator(self, request: Request) -> None:
        """Admit the administrator.

        Raises:
            Refused: where the token is missing, or another one; and where the address sends wrong ones too often.
        """
        token = self.token(request)
        if hmac.compare_digest(hashed(token), self._administrator):  # in a time that tells nothing of the token
            return
        self.stranger(request)
        if self._service.client_of(token) is not None:
            raise Refused(403, "this takes the administrator's token, not a client's")
        raise Refused(401, "this takes the administrator's token, and this is another one")

    def newcomer(self, request: Request, token: str) -> str | None:
        """Count an enrolment, unless it is a client's or comes from this machine itself; return the network it counts for.

        Raises:
            Refused: where too many new clients of the network were enrolled.
        """
        host = request.client.host if request.client else ""
        network = network_of(host) or (host if request.scope.get("forwarded") else None)
        if network is None or host in self._trusted or self._service.enrolment.client_of(token) is not None:
            return None
        self._slow_down(
            self._newcomers, network, "new clients of this address", "; or start the server with --trusted-addresses"
        )
        return network

    def no_newcomer(self, network: str | None) -> None:
        """Count an enrolment no more, because it made no new client."""
        self._newcomers.give_back(network)


def answer(verdict: Verdict) -> Response:
    """Write an answer."""
    headers = {}
    if verdict.status == 429:
        headers["retry-after"] = str(min(3600, int(verdict.body["seconds"]) + 1))
    if verdict.status == 408:
        headers["connection"] = "close"  # nobody waits for the rest of what was too slow
    return JSONResponse(verdict.body, verdict.status, headers)


def later(reason: str) -> Response:
    """Write the answer that the same request may be answered after two seconds."""
    response = answer(Verdict(503, {"reason": reason}))
    response.headers["retry-after"] = "2"
    return response


async def respond(request: Request, handler: Callable[[Request], Awaitable[Response]], name: str) -> Response:
    """Return what a handler answers to a request; turn its errors into answers, too.

    Args:
        request: what is answered.
        handler: what answers.
        name: of the handler, for the log of the server.
    """
    try:
        return await handler(request)
    except Refused as refused:
        return answer(refused.verdict)
    except Malformed as malformed:
        return answer(Verdict(400, {"reason": str(malformed)}))
    except (StoreUnavailable, OSError) as error:
        log.error("unavailable", extra={"reason": str(error)})
        return later("the server cannot do this now: try again later")
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception:
        log.exception("a request failed", extra={"route": name})
        return answer(Verdict(500, {"reason": "this request failed: the server's log says why"}))


async def body_of(request: Request, seconds: float) -> dict[str, Any]:
    """Read a JSON object; an empty body is an empty one.

    Args:
        request: whose body it is.
        seconds: which it may take.

    Raises:
        Refused: where it is too large or too slow.
        Malformed: where it is something else.
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
    return read_object(body)


def number_in_path(request: Request, name: str) -> int:
    """Return the number in the path of a request, of what it is about.

    Raises:
        Refused: for a number that nothing can have.
    """
    digits = request.path_params[name]
    if not _NUMBER.fullmatch(digits):
        raise Refused(404, f"there is no such {name}")
    return int(digits)


def query_number(request: Request, name: str, default: int) -> int:
    """Return a whole number of the query of a request.

    Raises:
        Refused: for anything else.
    """
    digits = request.query_params.get(name, str(default))
    if not _NUMBER.fullmatch(digits):
        raise Refused(400, f"{name} is a whole number of at most 15 digits")
    return int(digits)


def header(request: Request, name: str) -> str | None:
    """Return a header that may be given once.

    Raises:
        Refused: where it is given more than once.
    """
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise Refused(400, f"{name} is given {len(values)} times, needed once")
    return values[0] if values else None


def header_number(request: Request, name: str) -> int | None:
    """Return a header that is a whole number.

    Raises:
        Refused: for anything else.
    """
    digits = header(request, name)
    if digits is None:
        return None
    if not re.fullmatch(r"[0-9]{1,15}", digits):
        raise Refused(400, f"{name} is a whole number of at most 15 digits")
    return int(digits)


def digest_of(request: Request) -> str:
    """Return the SHA-256 of a report, in hexadecimal digits, as the header Repr-Digest gives it.

    Raises:
        Refused: where it gives none.
    """
    match = re.search(r"sha-256=:([A-Za-z0-9+/=]{44}):", (header(request, "repr-digest") or "")[:1000])
    try:
        digest = base64.b64decode(match[1], validate=True).hex() if match else ""
    except binascii.Error:
        digest = ""
    if not DIGEST.fullmatch(digest):
        raise Refused(400, "a report comes with the header Repr-Digest: sha-256=:BASE64:")
    return digest
