"""Answer HTTP requests: parameters, errors and counts of all routes, and the routes that need no token."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

from starlette import routing
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from turnout_serve.server.http.limits import Peers, network_of
from turnout_serve.server.http.openapi import document
from turnout_serve.server.http.requests import body_of, number_in_path, query_number
from turnout_serve.server.http.routes import Route, Sender, route
from turnout_serve.server.http.status import metrics, page
from turnout_serve.server.options import Options
from turnout_serve.server.store.database import StoreUnavailable
from turnout_serve.server.verdicts import Refused, Verdict
from turnout_serve.wire import bodies
from turnout_serve.wire.edge import Malformed
from turnout_serve.wire.status import Status

log = logging.getLogger("turnout.http")

Answered = TypeVar("Answered")
Method = Callable[..., Awaitable[Response]]

_PATIENCE = 30.0  # seconds that an event may take to be written

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
        routes: those that are answered.
        methods: the method that answers each route, by its name.
        admit: admits the sender of a request, or refuses it; returns what the method is told of it.
        announcement: description of the run for clients before they enroll, as plain values.
        options: options of the server.

    Attributes:
        counts: answers so far by HTTP status.
    """

    def __init__(
        self,
        routes: tuple[Route, ...],
        methods: Mapping[str, Method],
        admit: Callable[[Sender, Request], dict[str, Any]],
        announcement: dict[str, Any],
        options: Options,
    ) -> None:
        self._routes, self._methods, self._admit = routes, methods, admit
        self._announcement, self._options = announcement, options
        self._in_flight = Peers(options.limits)
        self.counts: dict[int, int] = {}

    @cached_property
    def _document(self) -> dict[str, Any]:
        # Built at the first request: the schemas of all bodies take longer than the rest of the start of a server.
        return document(self._routes)

    @abstractmethod
    def figures(self) -> Status:
        """Return the status of the run."""

    def app(self) -> routing.Router:
        """Return the ASGI application: a router without middleware, which would hold memory for each of 10,000 long polls."""
        endpoints = [routing.Route(route.path, _Endpoint(self, route)) for route in self._routes]
        return routing.Router(endpoints, redirect_slashes=False, default=_nothing)

    async def call(self, route: Route, request: Request) -> Response:
        """Admit the sender of a request, and call the method that answers its route with the values of its parameters."""
        values = {"request": request, **self._admit(route.sender, request)}
        values |= {name: query_number(request, name) for name in route.query}
        values |= {name: number_in_path(request, name) for name in route.parameters if name != "digest"}
        values |= {name: request.path_params[name] for name in route.parameters if name == "digest"}
        if route.takes_json:
            values["body"] = await body_of(request, route.body, self._options.limits.body_seconds)
        return await self._methods[route.name](**{name: values[name] for name in route.takes})

    async def answer(self, route: Route, request: Request) -> Response:
        """Return the answer to a request of a route, also if it is an error, and count it."""
        response = await respond(self.call(route, request), route.name)
        # Some proxies keep even errors for minutes: a model that was not there yet would stay missing.
        response.headers.setdefault("cache-control", "no-store")
        self.counts[response.status_code] = self.counts.get(response.status_code, 0) + 1
        return response

    @contextmanager
    def counted(self, scope: Scope) -> Iterator[bool]:
        """Count a request that a trusted proxy forwards by the address of its client; yield False for one too many."""
        peer, headers = scope.get("client"), scope["headers"]
        forwarded = [value for name, value in headers if name == b"x-forwarded-for"]
        client = self._options.proxies.client(peer[0], forwarded) if peer and forwarded else None
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

    @route("GET", "/v1/status", {200: (Status, "The figures.")}, "operator")
    async def status(self) -> Response:
        """Return the status of the run."""
        return JSONResponse(self.figures().fields())

    @route("GET", "/metrics", {200: ("text/plain", "The figures.")}, "operator")
    async def metrics(self) -> Response:
        """Return the status of the run in the text format of Prometheus."""
        return PlainTextResponse(metrics(self.figures()), media_type="text/plain; version=0.0.4")

    @route("GET", "/openapi.json", {200: (bodies.Nothing, "An OpenAPI document.")}, "anyone")
    async def openapi(self) -> Response:
        """Return this description."""
        return JSONResponse(self._document)

    @route("GET", "/", {200: ("text/html", "A page.")}, "anyone")
    async def page(self) -> Response:
        """Return a page that shows the status of the run. It has no figures itself: it asks for them with a token."""
        return HTMLResponse(page(), headers=PAGE_HEADERS)


class _Endpoint:
    """The ASGI application of one route."""

    def __init__(self, endpoints: Endpoints, route: Route) -> None:
        self._endpoints, self._route = endpoints, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
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
            except OSError as error:  # the file was deleted: the connection is closed, and the client asks again
                log.info("download ended early", extra={"reason": str(error)})


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request of no route."""
    if scope["type"] == "http":
        await JSONResponse({"reason": "there is no such route"}, 404)(scope, receive, send)


async def written(event: Future[Answered]) -> Answered:
    """Wait until an event is in the journal and applied, and return its answer.

    Raises:
        TimeoutError: if that takes longer than 30 seconds.
    """
    if event.done():
        return event.result()
    return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(event)), _PATIENCE)


def answer(verdict: Verdict) -> Response:
    """Return the response of an answer."""
    headers = {}
    if verdict.status == 429:
        headers["retry-after"] = str(min(3600, int(verdict.body["seconds"]) + 1))
    if verdict.status == 503:
        headers["retry-after"] = "2"
    if verdict.status == 408:
        headers["connection"] = "close"  # the rest of a slow body is not read
    return JSONResponse(verdict.body, verdict.status, headers)


async def respond(answering: Awaitable[Response], name: str) -> Response:
    """Return the answer of a handler; turn its errors into answers, too.

    Args:
        answering: the call of the handler.
        name: name of the route, for the log of the server.
    """
    try:
        return await answering
    except Refused as refused:
        return answer(refused.verdict)
    except Malformed as malformed:
        return answer(Verdict(400, {"reason": str(malformed)}))
    except bodies.OtherProtocol as other:
        log.warning("enrollment refused", extra={"reason": str(other)})
        return answer(Verdict(426, {"reason": str(other)}))
    except (StoreUnavailable, OSError) as error:
        log.error("unavailable", extra={"reason": str(error)})
        return answer(Verdict(503, {"reason": "the server is unavailable: try again later"}))
    except ClientDisconnect:
        return Response(status_code=400)
    except Exception:
        log.exception("a request failed", extra={"route": name})
        return answer(Verdict(500, {"reason": "this request failed, for a reason in the server's log"}))
