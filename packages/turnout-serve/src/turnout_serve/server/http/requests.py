"""Read the parts of a request: its sender, body, headers and path."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import re
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from starlette.requests import Request

from turnout_serve.server.enrollment import UNKNOWN, hashed
from turnout_serve.server.http.handshake import CERTIFICATE
from turnout_serve.server.http.limits import RateLimit, network_of
from turnout_serve.server.http.proxies import Networks
from turnout_serve.server.options import Options
from turnout_serve.server.service import Service
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.administrator import TOKEN
from turnout_serve.wire.bodies import Body
from turnout_serve.wire.edge import read_object

log = logging.getLogger("turnout.http")

CHUNK = 256 * 1024
DIGEST = re.compile(r"[0-9a-f]{64}")
AnyBody = TypeVar("AnyBody", bound=Body)

_JSON = 16 * 1024  # bytes of the largest JSON body
_NUMBER = re.compile(r"[0-9]{1,15}")


class Strangers:
    """Read tokens, and limit the requests of each address without a known token.

    Args:
        rate: requests per second of a client; an address without a token has a fifth of it. 0 means no limit.
        trusted: addresses that are not counted.
        administrator: hash of the administrator's token; with ``""`` there is no administrator.
    """

    def __init__(self, rate: float, trusted: Networks, administrator: str = "") -> None:
        self._limit, self._trusted, self._administrator = RateLimit(rate / 5, 2 * rate), trusted, administrator

    def token(self, request: Request) -> str:
        """Return the token of a request.

        Raises:
            Refused: if it has none.
        """
        kind, _, token = (header(request, "authorization") or "").partition(" ")
        if kind.lower() != "bearer" or not TOKEN.fullmatch(token):
            self.count(request)
            raise Refused(
                401, "this takes a token of 32 to 200 letters, digits or ._~+/=-: Authorization: Bearer TOKEN"
            )
        return token

    def administrator(self, request: Request, known: Callable[[str], dict[str, Any]] = lambda _: {}) -> None:
        """Admit the administrator.

        Args:
            request: request of the sender.
            known: finds the client of a token; see `turnout_serve.server.service.Service.known`.

        Raises:
            Refused: if the token is missing or wrong, or if the address sends too many wrong ones.
        """
        token = self.token(request)
        if hmac.compare_digest(hashed(token), self._administrator):  # in constant time
            return
        self.count(request)
        client = known(token)
        tell_refusal("authentication failed", request, "not the administrator's token", client)
        if client:
            raise Refused(403, "this takes the administrator's token, not a client's")
        raise Refused(401, "this is not the administrator's token")

    def count(self, request: Request) -> None:
        """Count a request without a token.

        Raises:
            Refused: if the address sends too many.
        """
        host = request.client.host if request.client else ""
        if host not in self._trusted:
            _slow_down(self._limit, network_of(host) or host)


def _slow_down(limit: RateLimit, peer: Hashable, what: str = "requests", instead: str = "") -> None:
    if wait := limit.wait(peer):
        raise Refused(429, f"too many {what}: try again in {wait:.1f} seconds{instead}", seconds=round(wait, 1))


class Gate:
    """Admit requests by their token, at a limited rate.

    Args:
        service: looks up clients.
        options: options of the server.
        administrator: hash of the administrator's token; with ``""`` there is no administrator.

    Attributes:
        strangers: reads tokens, and counts requests without a known one.
    """

    def __init__(self, service: Service, options: Options, administrator: str = "") -> None:
        self.strangers = Strangers(options.rate, options.trusted, administrator)
        self._service, self._trusted = service, options.trusted
        hourly, rate = options.enrolments_per_address, options.rate
        self._newcomers, self._limit = RateLimit(hourly / 3600, hourly), RateLimit(rate, 4 * rate)

    def client(self, request: Request) -> int:
        """Return the client that sends a request.

        Raises:
            Refused: if a token is unknown, or there are too many requests.
        """
        token = self.strangers.token(request)
        try:
            client = self._service.client_of(token)
            if client is None:
                raise Refused(401, UNKNOWN)
        except Refused as refused:
            self.strangers.count(request)
            tell_refusal("authentication failed", request, str(refused), self._service.known(token))
            raise
        _slow_down(self._limit, client)
        if (subject := request.scope.get(CERTIFICATE)) is not None:
            self._service.certificates[client] = subject
        return client

    def administrator(self, request: Request) -> None:
        """Admit the administrator; see `Strangers.administrator`."""
        self.strangers.administrator(request, self._service.known)

    def newcomer(self, request: Request, token: str) -> str | None:
        """Count an enrollment for the network of its sender, and return that; None where it is not counted.

        Not counted are clients that enroll again, and requests from this machine that no proxy forwards.

        Raises:
            Refused: if too many new clients of the network were enrolled.
        """
        host = request.client.host if request.client else ""
        network = network_of(host) or (host if request.scope.get("forwarded") else None)
        if network is None or host in self._trusted or self._service.enrollment.client_of(token) is not None:
            return None
        _slow_down(
            self._newcomers, network, "new clients of this address", "; or start the server with --trusted-addresses"
        )
        return network

    def no_newcomer(self, network: str | None) -> None:
        """Take back an enrollment that made no new client."""
        self._newcomers.give_back(network)


def tell_refusal(what: str, request: Request, reason: str, client: dict[str, Any]) -> None:
    """Log a request whose token does not admit its sender, with the client if it is known; their rate is limited."""
    host = request.client.host if request.client else ""
    log.warning(what, extra={"address": host, "route": request.url.path, **client, "reason": reason})


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
