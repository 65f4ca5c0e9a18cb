"""The routes by which clients enroll, ask for work in long polls, and leave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout.core.checks import ConfigurationError
from turnout_serve.server.http.endpoints import answer, written
from turnout_serve.server.http.gate import Gate, tell_refusal
from turnout_serve.server.http.routes import route
from turnout_serve.server.http.task_routes import links_of
from turnout_serve.server.service import Service
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire import bodies
from turnout_serve.wire.data_shape import DataShape


class LongPolls:
    """The open long polls, at most one of each client. All methods may be called by any thread."""

    def __init__(self) -> None:
        self._held: dict[int, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def hold(self, client: int) -> Iterator[asyncio.Future[None]]:
        """Open a long poll, in place of an earlier one of the client; yield a future that is done when it can be answered."""
        self.wake([client])
        future = self._held[client] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            if self._held.get(client) is future:
                del self._held[client]

    def wake(self, clients: Iterable[int] | None = None) -> None:
        """Have the long polls of clients answered; None answers all."""
        for client in list(self._held) if clients is None else clients:
            if (future := self._held.get(client)) is not None:
                with suppress(RuntimeError):  # of a loop that was closed because the server stops
                    future.get_loop().call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class ClientRoutes:
    """The endpoints of clients without a task.

    Args:
        service: answers the requests.
        gate: limits new clients of an address.
        shape: shape of the examples of all clients; None where it is not compared.

    Attributes:
        waiting: the long polls.
    """

    def __init__(self, service: Service, gate: Gate, shape: DataShape | None = None) -> None:
        self._service, self._gate, self._shape = service, gate, shape
        self.waiting = LongPolls()

    @route(
        "POST",
        "/v1/enrol",
        {
            200: (bodies.Client, "The token's bearer was a client before."),
            201: (bodies.Client, "The token's bearer is a client now."),
            202: (DataShape, "The server knew no shape of the data, and takes that of the client, who enrolls again."),
            403: "The run takes no more clients, needs a one-time code that nobody has used, or has banned this client.",
            410: "The run is over.",
            422: "The client's examples have another shape than those of the run; `reason` has both.",
            426: "The server speaks another version of the protocol.",
            429: "Too many requests, or new clients, of this address. Wait for the seconds of `Retry-After`.",
        },
        "newcomer",
        body=bodies.Enroll,
    )
    async def enroll(self, request: Request, token: str, body: bodies.Enroll) -> Response:
        """Make the bearer of the token a client of the run."""
        if body.data is not None and self._shape is not None:
            try:
                self._shape.check(body.data)
            except ConfigurationError as error:
                raise Refused(422, str(error)) from None
        network = self._gate.newcomer(request, token)
        verdict = await written(self._service.enroll(token, body.code, body.name))
        if verdict.status != 201:
            self._gate.newcomers.give_back(network)
        if verdict.status >= 400:
            who = self._service.known(token) or {"client_name": body.name or ""}
            tell_refusal("enrollment refused", request, verdict.body["reason"], who)
        return answer(verdict)

    @route(
        "POST",
        "/v1/checkin",
        {200: (bodies.Work, "A task, or when to ask again, or that the run is over.")},
        body=bodies.Checkin,
    )
    async def checkin(self, client: int, body: bodies.Checkin) -> Response:
        """Ask for work, in a long poll."""
        wait = min(body.wait, self._service.leases.longest_wait)
        full = len(self.waiting) >= self._service.leases.max_waiting
        if wait == 0.0 or full or self._service.writer.draining:
            work = self._service.work_of(client, 0.0, body.after)
        else:
            work = await self._work_within(client, wait, body.after)
        if work is None:
            work = {"come_back": self._service.come_back(client, len(self.waiting))}
        elif "task" in work:
            work = work | links_of(self._service, client, work["task"]["task"])
        return JSONResponse(work)

    async def _work_within(self, client: int, wait: float, after: int) -> dict[str, Any] | None:
        """Return a client's work, and wait for it; an earlier long poll of the client is answered now."""
        with self.waiting.hold(client) as woken:
            work = self._service.work_of(client, wait, after)
            if work is None:
                await asyncio.wait([woken], timeout=wait)
                work = self._service.work_of(client, 0.0, after)
        return work

    @route("POST", "/v1/leave", {200: (bodies.Nothing, "The client counts as absent until it asks for work again.")})
    async def leave(self, client: int) -> Response:
        """Go away; an open task is given up."""
        await written(self._service.leave(client))
        return JSONResponse({})
