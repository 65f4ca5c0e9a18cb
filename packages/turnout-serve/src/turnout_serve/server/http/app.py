"""The HTTP application of a run: all of its routes, and who may use them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnout_serve.server.http.administration import Administration
from turnout_serve.server.http.client_routes import ClientRoutes
from turnout_serve.server.http.downloads import ModelRoutes
from turnout_serve.server.http.endpoints import Endpoints
from turnout_serve.server.http.gate import Gate
from turnout_serve.server.http.join_page import JoinPage
from turnout_serve.server.http.routes import routes_of
from turnout_serve.server.http.status import status
from turnout_serve.server.http.task_routes import TaskRoutes
from turnout_serve.server.options import Options
from turnout_serve.server.service import Service
from turnout_serve.wire.data_shape import DataShape
from turnout_serve.wire.status import Status


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


ROUTES = routes_of(Http, ClientRoutes, ModelRoutes, TaskRoutes, Administration)
"""The routes of every server."""
