"""The HTTP application of a run: all of its routes, who may use them, and the page that turns a browser into a client."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.responses import HTMLResponse, Response

from turnout_serve.server.http.administration import Administration
from turnout_serve.server.http.client_routes import ClientRoutes
from turnout_serve.server.http.downloads import ModelRoutes
from turnout_serve.server.http.endpoints import PAGE_HEADERS, Endpoints
from turnout_serve.server.http.gate import Gate
from turnout_serve.server.http.routes import route, routes_of
from turnout_serve.server.http.status import status
from turnout_serve.server.http.task_routes import TaskRoutes
from turnout_serve.server.options import Options
from turnout_serve.server.service import Service
from turnout_serve.wire.data_shape import DataShape
from turnout_serve.wire.status import Status

_JOIN_POLICY = PAGE_HEADERS["content-security-policy"].replace("script-src", "script-src 'self'")


class Http(Endpoints):
    """The endpoints of one service.

    Args:
        service: answers the requests.
        announcement: description of the run for clients before they enroll, as plain values.
        options: options of the server.
        administrator: hash of the administrator's token; with ``""`` there is no administrator.
        shape: shape of the examples of all clients; None where it is not compared.

    Attributes:
        waiting: the long polls.
    """

    def __init__(
        self,
        service: Service,
        announcement: dict[str, Any],
        options: Options | None = None,
        administrator: str = "",
        shape: DataShape | None = None,
    ) -> None:
        options = options or Options()
        self._service, self._gate = service, Gate(service, options, administrator)
        clients = ClientRoutes(service, self._gate, shape)
        self._tasks, self.waiting = TaskRoutes(service, options.limits), clients.waiting
        owners = [self, clients, ModelRoutes(service), self._tasks, Administration(service)]
        owners += [JoinPage()] if options.page else []
        methods = {route.name: getattr(owner, route.name) for owner in owners for route in routes_of(type(owner))}
        super().__init__(routes_of(*map(type, owners)), methods, self._gate.admit, announcement, options)
        service.writer.notify = self._wake

    def figures(self) -> Status:
        """Return the status of the run."""
        return status(self._service, len(self.waiting), self.counts)

    def _wake(self, clients: Iterable[int]) -> None:
        """Answer the long polls of clients; all of them if the run is over. Any thread may call this."""
        everyone = self._service.driver.over is not None or self._service.writer.draining
        self.waiting.wake(None if everyone else clients)


class JoinPage:
    """The endpoints of ``turnout serve --page``: the page that turns a browser into a client, and its JavaScript client."""

    @route("GET", "/join", {200: ("text/html", "A page.")}, "anyone")
    async def join(self) -> Response:
        """Show a page that turns a browser into a client."""
        return HTMLResponse(_file("join.html"), headers={**PAGE_HEADERS, "content-security-policy": _JOIN_POLICY})

    @route("GET", "/turnout.js", {200: ("text/javascript", "A module.")}, "anyone")
    async def module(self) -> Response:
        """Give the client for browsers and for Node."""
        headers = {"x-content-type-options": "nosniff", "cache-control": "no-cache"}
        return Response(_file("turnout.js"), headers=headers, media_type="text/javascript")


@cache
def _file(name: str) -> str:
    return files("turnout_serve.client").joinpath("javascript", name).read_text(encoding="utf-8")


ROUTES = routes_of(Http, ClientRoutes, ModelRoutes, TaskRoutes, Administration)
"""The routes of every server."""
