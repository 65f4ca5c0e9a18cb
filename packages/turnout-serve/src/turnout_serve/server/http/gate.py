"""Admit requests by the token of their sender, at a limited rate."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Hashable
from typing import Any

from starlette.requests import Request

from turnout_serve.server.enrollment import UNKNOWN, hashed
from turnout_serve.server.http.limits import network_of
from turnout_serve.server.http.requests import header
from turnout_serve.server.http.routes import Sender
from turnout_serve.server.http.uvicorn_server import CERTIFICATE
from turnout_serve.server.options import Options
from turnout_serve.server.service import Service
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.administrator import TOKEN

log = logging.getLogger("turnout.http")


class RateLimit:
    """Token bucket for each peer: `rate` requests per second on average, and `burst` at once.

    Args:
        rate: requests per second; 0 means no limit.
        burst: requests at once.
        most: peers that are remembered; the one whose last request is oldest is forgotten first.
        clock: seconds; for tests.
    """

    def __init__(
        self, rate: float, burst: float, most: int = 100_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self._most, self._clock = rate, burst, most, clock
        self._left: dict[Hashable, tuple[float, float]] = {}

    def wait(self, peer: Hashable) -> float:
        """Count a request and return 0, or return the seconds until one is allowed."""
        if not self.rate:
            return 0.0
        now = self._clock()
        left, then = self._left.pop(peer, (self.burst, now))
        left = min(self.burst, left + (now - then) * self.rate)
        allowed = left >= 1.0
        self._left[peer] = (left - 1.0 if allowed else left), now
        if len(self._left) > self._most:
            del self._left[next(iter(self._left))]
        return 0.0 if allowed else (1.0 - left) / self.rate

    def give_back(self, peer: Hashable) -> None:
        """Take back the last request of a peer."""
        if (entry := self._left.get(peer)) is not None:
            self._left[peer] = min(self.burst, entry[0] + 1.0), entry[1]


class Strangers:
    """Read tokens, and limit the requests of each address without a known token.

    Args:
        options: of the server. An address without a token has a fifth of the `rate` of a client.
        administrator: hash of the administrator's token; with ``""`` there is no administrator.

    Attributes:
        known: function that returns the client of a token, for the log; nothing for an unknown token.
    """

    def __init__(self, options: Options, administrator: str = "") -> None:
        self._limit, self._administrator = RateLimit(options.rate / 5, 2 * options.rate), administrator
        self._trusted, self._public_status = options.trusted, options.public_status
        self.known: Callable[[str], dict[str, Any]] = lambda _: {}

    def admit(self, sender: Sender, request: Request) -> dict[str, Any]:
        """Admit the sender of a request, who is no client; return what the method of its route is told of it.

        Raises:
            Refused: if it has not the token for that, or sends too many requests.
        """
        if sender == "administrator" or (sender == "operator" and not self._public_status):
            self.administrator(request)
            return {}
        self.count(request)
        return {"token": self.token(request)} if sender == "newcomer" else {}

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

    def administrator(self, request: Request) -> None:
        """Admit the administrator.

        Raises:
            Refused: if the token is missing or wrong, or if the address sends too many wrong ones.
        """
        token = self.token(request)
        if hmac.compare_digest(hashed(token), self._administrator):  # in constant time
            return
        self.count(request)
        client = self.known(token)
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


class Gate(Strangers):
    """Admit clients by their token, at a limited rate, and all others as `Strangers` does.

    Args:
        service: looks up clients.
        options: options of the server.
        administrator: hash of the administrator's token; with ``""`` there is no administrator.

    Attributes:
        newcomers: limits new clients by their network.
    """

    def __init__(self, service: Service, options: Options, administrator: str = "") -> None:
        super().__init__(options, administrator)
        self._service, self.known = service, service.known
        hourly, rate = options.enrollments_per_address, options.rate
        self.newcomers, self._of_clients = RateLimit(hourly / 3600, hourly), RateLimit(rate, 4 * rate)

    def admit(self, sender: Sender, request: Request) -> dict[str, Any]:
        """Admit the sender of a request, as `Strangers.admit` does."""
        return {"client": self.client(request)} if sender == "client" else super().admit(sender, request)

    def client(self, request: Request) -> int:
        """Return the client that sends a request.

        Raises:
            Refused: if a token is unknown, or there are too many requests.
        """
        token = self.token(request)
        try:
            client = self._service.client_of(token)
            if client is None:
                raise Refused(401, UNKNOWN)
        except Refused as refused:
            self.count(request)
            tell_refusal("authentication failed", request, str(refused), self.known(token))
            raise
        _slow_down(self._of_clients, client)
        if (subject := request.scope.get(CERTIFICATE)) is not None:
            self._service.certificates[client] = subject
        return client

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
            self.newcomers, network, "new clients of this address", "; or start the server with --trusted-addresses"
        )
        return network


def tell_refusal(what: str, request: Request, reason: str, client: dict[str, Any]) -> None:
    """Log a request whose token does not admit its sender, with the client if it is known; their rate is limited."""
    host = request.client.host if request.client else ""
    log.warning(what, extra={"address": host, "route": request.url.path, **client, "reason": reason})
