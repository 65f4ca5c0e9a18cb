"""The protocol as an ASGI application: what HTTP asks of a `Service`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from starlette import routing
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from turnout.core.checks import ConfigurationError
from turnout.deployment.server.administration import Administration
from turnout.deployment.server.downloads import download
from turnout.deployment.server.limits import Limits, Peers, network_of
from turnout.deployment.server.long_polls import LongPolls
from turnout.deployment.server.openapi import document
from turnout.deployment.server.proxies import Networks, Proxies
from turnout.deployment.server.publication import CurrentModel
from turnout.deployment.server.requests import (
    DIGEST,
    Gate,
    body_of,
    digest_of,
    header,
    number_in_path,
    query_number,
    respond,
)
from turnout.deployment.server.requests import answer as answer_with
from turnout.deployment.server.routes import PAGE_ROUTES, ROUTES, Route
from turnout.deployment.server.service import Service
from turnout.deployment.server.status import client_file, metrics, page, status
from turnout.deployment.server.uploads import Uploads
from turnout.deployment.server.verdicts import Refused, Verdict
from turnout.deployment.wire.administrator import MOST_CODES
from turnout.deployment.wire.data_shape import DataShape, shape_in
from turnout.deployment.wire.edge import number, text, whole
from turnout.deployment.wire.format import LARGE, PROTOCOL, Assignment, WireError, repr_digest
from turnout.deployment.wire.messages import ReportFormat
from turnout.deployment.wire.phases import PhaseFormat
from turnout.deployment.wire.surveys import SumsFormat

log = logging.getLogger("turnout.http")

Handler = Callable[[Request], Awaitable[Response]]
Answered = TypeVar("Answered")


PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


class Http:
    """The endpoints of one service.

    Args:
        service: what they ask.
        announcement: what a client is told of the run before it enrols, as plain values.
        rate: requests a second of each client and of each address without a token; 0 is no limit.
        limits: of bodies; `sockets` applies those of connections and headers.
        patience: seconds that an answer may take to be written.
        page: whether there is a page in which a browser becomes a client.
        administrator: the hash of the administrator's token; ``""`` is nobody's.
        enrolments: new clients an hour of each address; 0 is no limit.
        proxies: whose header X-Forwarded-For gives the address of a client.
        trusted: addresses without limits of their own.
        shape: of the examples of all clients; None where it is not compared.
    """

    def __init__(
        self,
        service: Service,
        announcement: dict[str, Any],
        *,
        rate: float = 50.0,
        limits: Limits | None = None,
        patience: float = 30.0,
        page: bool = False,
        administrator: str = "",
        enrolments: int = 0,
        proxies: Proxies | None = None,
        trusted: Networks | None = None,
        shape: DataShape | None = None,
    ) -> None:
        self.service, self._announcement, self._shape = service, announcement, shape
        self._limits, self._patience = limits or Limits(), patience
        self._trusted = trusted or Networks()
        self._gate = Gate(service, rate, administrator, enrolments, self._trusted)
        self._uploads = Uploads(service, self._limits)
        self._proxies, self._in_flight = proxies or Proxies(), Peers(self._limits)
        self._administration = Administration(service)
        store, driver = service.store, service.driver
        self._current_model = CurrentModel(store.folder / "exports", driver.publication, driver.setting.trained)
        self._waiting, self._routes = LongPolls(), ROUTES + (PAGE_ROUTES if page else ())
        self._document = document(self._routes)
        self._one = asyncio.Lock()  # report of the largest that is looked at
        self._loop: asyncio.AbstractEventLoop | None = None
        self.counts: dict[int, int] = {}
        service.woken = self._wake

    def app(self) -> routing.Router:
        """Return the application: a router and nothing around it, for 10,000 clients may wait in here."""

        @asynccontextmanager
        async def lifespan(_: object) -> AsyncIterator[None]:
            self._loop = asyncio.get_running_loop()
            yield

        endpoints = [
            routing.Route(route.path, _Endpoint(self, route, getattr(self, f"_{route.name}"))) for route in self._routes
        ]
        return routing.Router(endpoints, redirect_slashes=False, default=_nothing, lifespan=lifespan)

    def release(self) -> None:
        """Answer all who wait for work, because the server stops."""
        self._waiting.wake_all()

    async def answer(self, route: Route, handler: Handler, request: Request) -> Response:
        """Return what an endpoint answers; errors are turned into answers, too."""

        async def checked(request: Request) -> Response:
            if route.security == "administrator":
                self._gate.administrator(request)
            return await handler(request)

        response = await respond(request, checked, handler.__name__)
        self.counts[response.status_code] = self.counts.get(response.status_code, 0) + 1
        return response

    @contextmanager
    def counted(self, scope: Scope) -> Iterator[bool]:
        """Count a request that a trusted proxy forwards by its client's address; give whether there may be one more."""
        peer, headers = scope.get("client"), scope["headers"]
        forwarded = [value for name, value in headers if name == b"x-forwarded-for"]
        client = None if peer is None else self._proxies.client(peer[0], forwarded)
        if client is None:
            yield True
            return
        scope["client"], scope["forwarded"] = (client, 0), True
        request, network = object(), None if client in self._trusted else network_of(client) or client
        admitted = self._in_flight.admit(request, network)
        try:
            yield admitted
        finally:
            self._in_flight.forget(request, network)

    # Endpoints.

    async def _run(self, request: Request) -> Response:
        self._gate.stranger(request)
        return JSONResponse(self._announcement)

    async def _enrol(self, request: Request) -> Response:
        self._gate.stranger(request)
        token, body = self._gate.token(request), await body_of(request, self._limits.body_seconds)
        if (protocol := whole(body, "protocol", 0, 1 << 31, default=0)) != PROTOCOL:
            raise Refused(426, f"this server speaks protocol {PROTOCOL}, the client {protocol}: update it")
        code, name = text(body, "code"), text(body, "name")
        if (told := shape_in(body)) is not None and self._shape is not None:
            try:
                self._shape.check(told)
            except ConfigurationError as error:
                raise Refused(422, str(error)) from None
        network = self._gate.newcomer(request, token)
        verdict = await self._answered(self.service.enrol(token, code, name))
        if verdict.status != 201:
            self._gate.no_newcomer(network)
        return answer_with(verdict)

    async def _checkin(self, request: Request) -> Response:
        client, body = self._gate.client(request), await body_of(request, self._limits.body_seconds)
        wait, after = number(body, "wait", 0.0, 1e9, default=0.0), whole(body, "after", -1, (1 << 53) - 1, default=-1)
        wait = min(wait, self.service.leases.longest_wait)
        full = len(self._waiting) >= self.service.leases.max_waiting
        if wait == 0.0 or full or self.service.draining:
            work = self.service.work_of(client, 0.0, after)
        else:
            work = await self._work_within(client, wait, after)
        if work is None:
            work = {"come_back": self.service.come_back(client, len(self._waiting))}
        elif "task" in work:
            work = work | self._links(client, work["task"]["task"])
        return JSONResponse(work)

    async def _work_within(self, client: int, wait: float, after: int) -> dict[str, Any] | None:
        """Return a client's work, for which it waits; its earlier request, if it still waits, is answered now."""
        with self._waiting.held(client) as woken:
            work = self.service.work_of(client, wait, after)
            if work is None:
                await asyncio.wait([woken], timeout=wait)
                work = self.service.work_of(client, 0.0, after)
        return work

    def _links(self, client: int, task: int) -> dict[str, Any]:
        """Return the field of an answer with the links of an open task, where the run has an object store."""
        files, assignment = self.service.store.files, self.service.open(client, task)
        if not files.takes_uploads or assignment is None:
            return {}
        limit = self.service.driver.setting.expected(assignment).size_limit
        links = files.links(client, assignment.model, assignment.size, limit)
        return {"store": links} if links else {}

    async def _leave(self, request: Request) -> Response:
        await self._answered(self.service.leave(self._gate.client(request)))
        return JSONResponse({})

    async def _model(self, request: Request) -> Response:
        self._gate.client(request)
        digest = request.path_params["digest"]
        path = self.service.store.files.model(digest)
        if not DIGEST.fullmatch(digest) or not path.is_file():
            raise Refused(404, "there is no such model, or no longer")
        return download(request, path, digest)

    async def _current(self, request: Request) -> Response:
        self._gate.client(request)
        if (export := await asyncio.to_thread(self._current_model.file)) is None:
            raise Refused(404, "there is no model yet: training has not begun")
        response = download(request, export.path, export.digest)
        response.headers["cache-control"] = "no-cache"
        response.headers["repr-digest"] = repr_digest(export.digest)
        response.headers["model-version"] = str(export.version)
        return response

    async def _task(self, request: Request) -> Response:
        client, task = self._gate.client(request), number_in_path(request, "task")
        verdict = self.service.state_of(client, task)
        if verdict.body["state"] == "open":
            verdict.body["offset"] = self._uploads.offset(client, task)
            verdict.body.update(self._links(client, task))
        return answer_with(verdict)

    async def _heartbeat(self, request: Request) -> Response:
        return answer_with(self.service.alive(self._gate.client(request), number_in_path(request, "task")))

    async def _fail(self, request: Request) -> Response:
        client, body = self._gate.client(request), await body_of(request, self._limits.body_seconds)
        await self._answered(self.service.fail(client, number_in_path(request, "task"), text(body, "reason") or "died"))
        return JSONResponse({})

    async def _report(self, request: Request) -> Response:
        client, task = self._gate.client(request), number_in_path(request, "task")
        digest = digest_of(request)
        if (ended := self.service.ended(client, task, digest)) is not None:
            return answer_with(ended)
        assignment = self.service.open(client, task)
        assert assignment is not None
        if (header(request, "task-fingerprint") or assignment.fingerprint) != assignment.fingerprint:
            raise Refused(410, "this number is another task's by now: the server was restored from a copy")
        expected = self.service.driver.setting.expected(assignment)
        async with self._uploads.received(request, client, task, digest, expected.size_limit) as file:
            try:
                await _checked(expected, file, client, assignment, self._one)
            except WireError as error:
                file.unlink(missing_ok=True)
                await self._answered(self.service.fail(client, task, "died"))
                raise Refused(422, str(error)) from None
            if (files := self.service.store.files).takes_uploads:
                await asyncio.to_thread(files.admit, file, digest)  # before the journal names it
            return answer_with(await self._answered(self.service.report(client, task, digest, file)))

    async def _status(self, request: Request) -> Response:
        self._gate.stranger(request)
        return JSONResponse(status(self.service, len(self._waiting), self.counts))

    async def _metrics(self, request: Request) -> Response:
        self._gate.stranger(request)
        text = metrics(status(self.service, len(self._waiting), self.counts))
        return PlainTextResponse(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _openapi(self, request: Request) -> Response:
        self._gate.stranger(request)
        return JSONResponse(self._document)

    async def _page(self, request: Request) -> Response:
        del request
        return HTMLResponse(page(), headers=PAGE_HEADERS)

    async def _join(self, request: Request) -> Response:
        self._gate.stranger(request)
        policy = PAGE_HEADERS["content-security-policy"].replace("script-src", "script-src 'self'")
        return HTMLResponse(client_file("join.html"), headers={**PAGE_HEADERS, "content-security-policy": policy})

    async def _module(self, request: Request) -> Response:
        self._gate.stranger(request)
        headers = {"x-content-type-options": "nosniff", "cache-control": "no-cache"}
        return Response(client_file("turnout.js"), headers=headers, media_type="text/javascript")

    # What an administrator asks. `answer` has checked the token.

    async def _clients(self, request: Request) -> Response:
        return JSONResponse(self._administration.clients(query_number(request, "first", 0)))

    async def _client(self, request: Request) -> Response:
        client, body = number_in_path(request, "client"), await body_of(request, self._limits.body_seconds)
        change = text(body, "change") or ""
        return answer_with(await self._answered(self._administration.change(client, change, text(body, "text") or "")))

    async def _codes(self, request: Request) -> Response:
        del request
        return JSONResponse(self._administration.codes())

    async def _add_codes(self, request: Request) -> Response:
        body = await body_of(request, self._limits.body_seconds)
        codes, written = self._administration.add_codes(whole(body, "number", 1, MOST_CODES, default=1))
        await self._answered(written)
        return JSONResponse({"codes": codes})

    async def _withdraw_codes(self, request: Request) -> Response:
        body = await body_of(request, self._limits.body_seconds)
        return answer_with(await self._answered(self._administration.withdraw(text(body, "code"))))

    async def _begin_survey(self, request: Request) -> Response:
        begun = self._administration.ask(await body_of(request, self._limits.body_seconds))
        return JSONResponse({"survey": await self._answered(begun)}, 201)

    async def _survey(self, request: Request) -> Response:
        return JSONResponse(self._administration.survey(number_in_path(request, "survey")))

    # What the service's thread and this one tell each other.

    async def _answered(self, future: Future[Answered]) -> Answered:
        """Wait for the journal."""
        if future.done():
            return future.result()
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._patience)

    def _wake(self, clients: Iterable[int]) -> None:
        """Answer those who wait for work and have some now; all of them if the run is over."""
        if self._loop is not None:
            with suppress(RuntimeError):  # of a loop that was closed because the server stops
                self._loop.call_soon_threadsafe(self._wake_here, list(clients))

    def _wake_here(self, clients: list[int]) -> None:
        if self.service.driver.over is not None or self.service.draining:
            self.release()
            return
        self._waiting.wake(clients)


async def _checked(
    expected: ReportFormat | PhaseFormat | SumsFormat,
    file: Path,
    client: int,
    assignment: Assignment,
    one: asyncio.Lock,
) -> None:
    """Read a report once, in a thread of its own if it takes long, and one of the largest at a time.

    Raises:
        WireError: where it is not what was asked for.
    """
    maps = file.stat().st_size >= LARGE

    def read() -> None:
        try:
            if isinstance(expected, ReportFormat):
                body = file if maps else file.read_bytes()
                expected.read(body, client, assignment.version, assignment.repeat)
            else:
                expected.read(file.read_bytes())
        except (WireError, OSError):
            raise
        except Exception as error:
            log.exception("a report cannot be read", extra={"client": client, "task": assignment.task})
            raise WireError("the report cannot be read") from error

    async with one if maps else nullcontext():
        await asyncio.to_thread(read) if file.stat().st_size > 1 << 20 else read()


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer what is asked for under no address."""
    if scope["type"] == "http":
        await JSONResponse({"reason": "there is nothing here"}, 404)(scope, receive, send)


class _Endpoint:
    """Answer the requests of one route.

    Args:
        http: whose route it is.
        route: the address, the method, and whose token it takes.
        handler: makes the answer.
    """

    def __init__(self, http: Http, route: Route, handler: Handler) -> None:
        self._http, self._route, self._handler = http, route, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        with self._http.counted(scope) as admitted:
            await self._answer(scope, receive, send, admitted)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, admitted: bool) -> None:
        if not admitted:
            reason = "too many requests of this address are in flight: try again later"
            response: Response = answer_with(Verdict(429, {"reason": reason, "seconds": 4.0}))
        elif scope["method"] != (method := self._route.method):
            response = JSONResponse({"reason": f"this takes {method}"}, 405, {"allow": method})
        else:
            response = await self._http.answer(self._route, self._handler, Request(scope, receive))
        try:
            await response(scope, receive, send)
        except OSError as error:  # the connection is closed, and the client asks for the rest
            log.info("download ended early", extra={"reason": str(error)})
