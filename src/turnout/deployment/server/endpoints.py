"""Answer HTTP requests: what all routes have in common, and the routes that need no token."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from starlette import routing
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from turnout.deployment.server.limits import Peers, network_of
from turnout.deployment.server.openapi import document
from turnout.deployment.server.options import Options
from turnout.deployment.server.requests import body_of, number_in_path, query_number
from turnout.deployment.server.routes import Route, route
from turnout.deployment.server.status import metrics, page
from turnout.deployment.server.store import StoreUnavailable
from turnout.deployment.server.verdicts import Refused, Verdict
from turnout.deployment.wire import admin_bodies, bodies
from turnout.deployment.wire.edge import Malformed

log = logging.getLogger("turnout.http")

PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


class Endpoints(ABC):
    """Answer the requests of some routes, and count the answers.

    Args:
        routes: whose requests are answered, each by the method of its name.
        announcement: what a client is told of the run before it enrols, as plain values.
        options: of the server.

    Attributes:
        counts: answers so far by status.
    """

    def __init__(self, routes: tuple[Route, ...], announcement: dict[str, Any], options: Options) -> None:
        self._routes, self._announcement, self._options = routes, announcement, options
        self._in_flight = Peers(options.limits)
        self.counts: dict[int, int] = {}

    @cached_property
    def _document(self) -> dict[str, Any]:
        # Made when it is first asked for: the schemas of all bodies take longer than the rest of a server's start.
        return document(self._routes)

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """Return the figures of the run, as `turnout.deployment.wire.admin_bodies.Status` has them."""

    @abstractmethod
    async def handle(self, route: Route, request: Request) -> Response:
        """Return the answer to a request of a route."""

    def app(self) -> routing.Router:
        """Return the application: a router and nothing around it, for 10,000 clients may wait in here."""
        endpoints = [routing.Route(route.path, _Endpoint(self, route)) for route in self._routes]
        return routing.Router(endpoints, redirect_slashes=False, default=_nothing)

    async def call(
        self, route: Route, request: Request, method: Callable[..., Awaitable[Response]], **sender: Any
    ) -> Response:
        """Call the method that answers a route with what its parameters name."""
        values = {"request": request, **sender}
        values |= {name: query_number(request, name) for name in route.query}
        values |= {name: number_in_path(request, name) for name in route.parameters if name != "digest"}
        values |= {name: request.path_params[name] for name in route.parameters if name == "digest"}
        if route.takes_json:
            values["body"] = await body_of(request, route.body, self._options.limits.body_seconds)
        return await method(**{name: values[name] for name in route.takes})

    async def answer(self, route: Route, request: Request) -> Response:
        """Return what an endpoint answers; errors are turned into answers, too."""
        response = await respond(self.handle(route, request), route.name)
        self.counts[response.status_code] = self.counts.get(response.status_code, 0) + 1
        return response

    @contextmanager
    def counted(self, scope: Scope) -> Iterator[bool]:
        """Count a request that a trusted proxy forwards by its client's address; give whether there may be one more."""
        peer, headers = scope.get("client"), scope["headers"]
        forwarded = [value for name, value in headers if name == b"x-forwarded-for"]
        client = None if peer is None else self._options.proxies.client(peer[0], forwarded)
        if client is None:
            yield True
            return
        scope["client"], scope["forwarded"] = (client, 0), True
        request, network = object(), None if client in self._options.trusted else network_of(client) or client
        admitted = self._in_flight.admit(request, network)
        try:
            yield admitted
        finally:
            self._in_flight.forget(request, network)

    @route("GET", "/v1/run", {200: (bodies.Run, "The protocol's version, and what clients compute.")}, "anyone")
    async def run(self) -> Response:
        """Describe the run."""
        return JSONResponse(self._announcement)

    @route("GET", "/v1/status", {200: (admin_bodies.Status, "The figures.")}, "anyone")
    async def status(self) -> Response:
        """Give the figures of the run."""
        return JSONResponse(self.figures())

    @route("GET", "/metrics", {200: ("text/plain", "The figures.")}, "anyone")
    async def metrics(self) -> Response:
        """Give the figures of the run as Prometheus reads them."""
        return PlainTextResponse(metrics(self.figures()), media_type="text/plain; version=0.0.4")

    @route("GET", "/openapi.json", {200: (bodies.Nothing, "An OpenAPI document.")}, "anyone")
    async def openapi(self) -> Response:
        """Give this description."""
        return JSONResponse(self._document)

    @route("GET", "/", {200: ("text/html", "A page.")}, "anyone")
    async def page(self) -> Response:
        """Show the run to people."""
        return HTMLResponse(page(), headers=PAGE_HEADERS)


class _Endpoint:
    """Answer the requests of one route, as an ASGI application."""

    def __init__(self, endpoints: Endpoints, route: Route) -> None:
        self._endpoints, self._route = endpoints, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        with self._endpoints.counted(scope) as admitted:
            if not admitted:
                reason = "too many requests of this address are in flight: try again later"
                response: Response = answer(Verdict(429, {"reason": reason, "seconds": 4.0}))
            elif scope["method"] != (method := self._route.method):
                response = JSONResponse({"reason": f"this takes {method}"}, 405, {"allow": method})
            else:
                response = await self._endpoints.answer(self._route, Request(scope, receive))
            try:
                await response(scope, receive, send)
            except OSError as error:  # the connection is closed, and the client asks for the rest
                log.info("download ended early", extra={"reason": str(error)})


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what is asked for under no address."""
    if scope["type"] == "http":
        await JSONResponse({"reason": "there is nothing here"}, 404)(scope, receive, send)


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


async def respond(answering: Awaitable[Response], name: str) -> Response:
    """Return the answer of a handler; turn its errors into answers, too.

    Args:
        answering: the call of the handler.
        name: of the route, for the log of the server.
    """
    try:
        return await answering
    except Refused as refused:
        return answer(refused.verdict)
    except Malformed as malformed:
        return answer(Verdict(400, {"reason": str(malformed)}))
    except bodies.OtherProtocol as other:
        return answer(Verdict(426, {"reason": str(other)}))
    except (StoreUnavailable, OSError) as error:
        log.error("unavailable", extra={"reason": str(error)})
        return later("the server cannot do this now: try again later")
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception:
        log.exception("a request failed", extra={"route": name})
        return answer(Verdict(500, {"reason": "this request failed: the server's log says why"}))
