"""The routes of clients, answered by a `Service`; with those that need no token, and those of an administrator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout.core.checks import ConfigurationError
from turnout.deployment.server.administration import Administration
from turnout.deployment.server.downloads import download
from turnout.deployment.server.endpoints import Endpoints, answer
from turnout.deployment.server.join_page import JoinPage
from turnout.deployment.server.long_polls import LongPolls
from turnout.deployment.server.options import Options
from turnout.deployment.server.publication import CurrentModel
from turnout.deployment.server.requests import DIGEST, Gate, digest_of, header
from turnout.deployment.server.routes import BINARY, Route, route, routes_of
from turnout.deployment.server.service import Service
from turnout.deployment.server.status import status
from turnout.deployment.server.uploads import Uploads
from turnout.deployment.server.verdicts import Refused
from turnout.deployment.wire import bodies
from turnout.deployment.wire.data_shape import DataShape
from turnout.deployment.wire.format import LARGE, Assignment, WireError, repr_digest
from turnout.deployment.wire.messages import ReportFormat
from turnout.deployment.wire.phases import PhaseFormat
from turnout.deployment.wire.surveys import SumsFormat

log = logging.getLogger("turnout.http")

Answered = TypeVar("Answered")

_PATIENCE = 30.0  # seconds that an answer may take to be written to the journal
_NO_TASK = {404: "The client has no such task."}
_FILE = {
    200: (BINARY, "The whole file, safetensors."),
    206: (BINARY, "The range that was asked for."),
    304: ("", "The client has this file already, as its header `If-None-Match` says."),
    416: ("", "The file ends before the range begins."),
}
_RANGE = {"range": (r"^bytes=[0-9]{1,18}-[0-9]{0,18}$", False)}
_STATE = (bodies.TaskState, "The state of the task: whether a report is still wanted.")


class Http(Endpoints):
    """The endpoints of one service.

    Args:
        service: what they ask.
        announcement: what a client is told of the run before it enrols, as plain values.
        options: of the server.
        administrator: the hash of the administrator's token; ``""`` is nobody's.
        shape: of the examples of all clients; None where it is not compared.
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
        self._gate = Gate(service, options, administrator)
        self.service, self._shape = service, shape
        self._uploads = Uploads(service, options.limits)
        owners = [self, Administration(service, self.written), *([JoinPage()] if options.page else [])]
        self._handlers = {
            route.name: getattr(owner, route.name) for owner in owners for route in routes_of(type(owner))
        }
        super().__init__(routes_of(*map(type, owners)), announcement, options)
        store, driver = service.store, service.driver
        self._current_model = CurrentModel(store.folder / "exports", driver.publication, driver.setting.trained)
        self._waiting, self._one = LongPolls(), asyncio.Lock()  # report of the largest that is looked at
        service.woken = self._wake

    def release(self) -> None:
        """Answer all who wait for work, because the server stops."""
        self._waiting.wake()

    def figures(self) -> dict[str, Any]:
        """Return the figures of the run."""
        return status(self.service, len(self._waiting), self.counts)

    async def handle(self, route: Route, request: Request) -> Response:
        """Admit who sends a request, and return the answer."""
        sender: dict[str, Any] = {}
        match route.sender:
            case "anyone":
                self._gate.stranger(request)
            case "newcomer":
                self._gate.stranger(request)
                sender["token"] = self._gate.token(request)
            case "client":
                sender["client"] = self._gate.client(request)
            case "administrator":
                self._gate.administrator(request)
        return await self.call(route, request, self._handlers[route.name], **sender)

    @route(
        "POST",
        "/v1/enrol",
        {
            200: (bodies.Client, "The token's bearer was a client before."),
            201: (bodies.Client, "The token's bearer is a client now."),
            202: (DataShape, "The server knew no shape of the data, and takes that of the client, who enrols again."),
            403: "The run takes no more clients, needs a one-time code that nobody has used, or has banned this client.",
            410: "The run is over.",
            422: "The client's examples have another shape than those of the run; `reason` has both.",
            426: "The server speaks another version of the protocol.",
            429: "Too many requests, or new clients, of this address. Wait for the seconds of `Retry-After`.",
        },
        "newcomer",
        body=bodies.Enrol,
    )
    async def enrol(self, request: Request, token: str, body: bodies.Enrol) -> Response:
        """Make the bearer of the token a client of the run."""
        if body.data is not None and self._shape is not None:
            try:
                self._shape.check(body.data)
            except ConfigurationError as error:
                raise Refused(422, str(error)) from None
        network = self._gate.newcomer(request, token)
        verdict = await self.written(self.service.enrol(token, body.code, body.name))
        if verdict.status != 201:
            self._gate.no_newcomer(network)
        return answer(verdict)

    @route(
        "POST",
        "/v1/checkin",
        {200: (bodies.Work, "A task, or when to ask again, or that the run is over.")},
        body=bodies.Checkin,
    )
    async def checkin(self, client: int, body: bodies.Checkin) -> Response:
        """Ask for work, and wait for it."""
        wait = min(body.wait, self.service.leases.longest_wait)
        full = len(self._waiting) >= self.service.leases.max_waiting
        if wait == 0.0 or full or self.service.draining:
            work = self.service.work_of(client, 0.0, body.after)
        else:
            work = await self._work_within(client, wait, body.after)
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

    @route("POST", "/v1/leave", {200: (bodies.Nothing, "The client counts as absent until it asks for work again.")})
    async def leave(self, client: int) -> Response:
        """Go away; an open task is given up."""
        await self.written(self.service.leave(client))
        return JSONResponse({})

    @route("GET", "/v1/models/{digest}", {**_FILE, 404: "There is no such model, or no longer."}, headers=_RANGE)
    async def model(self, request: Request, digest: str) -> Response:
        """Download a model."""
        path = self.service.store.files.model(digest)
        if not DIGEST.fullmatch(digest) or not path.is_file():
            raise Refused(404, "there is no such model, or no longer")
        return download(request, path, digest)

    @route(
        "GET",
        "/v1/model",
        {**_FILE, 404: "Training has not begun."},
        headers=_RANGE,
        sends=("etag", "repr-digest", "model-version"),
    )
    async def current(self, request: Request) -> Response:
        """Download the present model as named tensors."""
        if (export := await asyncio.to_thread(self._current_model.file)) is None:
            raise Refused(404, "there is no model yet: training has not begun")
        response = download(request, export.path, export.digest)
        response.headers["cache-control"] = "no-cache"
        response.headers["repr-digest"] = repr_digest(export.digest)
        response.headers["model-version"] = str(export.version)
        return response

    @route(
        "GET",
        "/v1/tasks/{task}",
        {
            200: (bodies.TaskState, "The state of the task; of an open one, how many bytes of a report have arrived."),
            **_NO_TASK,
        },
    )
    async def task(self, client: int, task: int) -> Response:
        """Ask what became of a task."""
        verdict = self.service.state_of(client, task)
        if verdict.body["state"] == "open":
            verdict.body["offset"] = self._uploads.offset(client, task)
            verdict.body.update(self._links(client, task))
        return answer(verdict)

    @route("POST", "/v1/tasks/{task}/heartbeat", {200: _STATE, **_NO_TASK})
    async def heartbeat(self, client: int, task: int) -> Response:
        """Give a sign of life while at work."""
        return answer(self.service.alive(client, task))

    @route(
        "POST",
        "/v1/tasks/{task}/fail",
        {200: (bodies.Nothing, "The task has ended."), **_NO_TASK},
        body=bodies.Fail,
    )
    async def fail(self, client: int, task: int, body: bodies.Fail) -> Response:
        """Give a task up."""
        await self.written(self.service.fail(client, task, body.reason or "died"))
        return JSONResponse({})

    @route(
        "PUT",
        "/v1/tasks/{task}/report",
        {
            200: (bodies.TaskState, "This report was taken before."),
            201: (bodies.TaskState, "The report is taken."),
            408: "The body comes too slowly. Send what is missing later.",
            409: "Another report on this task was taken; or, with `offset`, the report goes on at that byte.",
            410: "The task has ended without a report, for `reason`.",
            413: "The report is larger than one on this task can be.",
            422: "The report is not what was asked for; the task has ended.",
            **_NO_TASK,
        },
        body=BINARY,
        headers={
            "repr-digest": (r"sha-256=:[A-Za-z0-9+/]{43}=:", True),
            "upload-length": (r"^[0-9]{1,15}$", False),
            "upload-offset": (r"^[0-9]{1,15}$", False),
            "task-fingerprint": (r"^[0-9a-f]{32}$", False),
        },
    )
    async def report(self, request: Request, client: int, task: int) -> Response:
        """Send a report, or what is missing of it."""
        digest = digest_of(request)
        if (ended := self.service.ended(client, task, digest)) is not None:
            return answer(ended)
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
                await self.written(self.service.fail(client, task, "died"))
                raise Refused(422, str(error)) from None
            if (files := self.service.store.files).takes_uploads:
                await asyncio.to_thread(files.admit, file, digest)  # before the journal names it
            return answer(await self.written(self.service.report(client, task, digest, file)))

    async def written(self, future: Future[Answered]) -> Answered:
        """Wait for the journal, and return the result of what was written."""
        if future.done():
            return future.result()
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), _PATIENCE)

    def _wake(self, clients: Iterable[int]) -> None:
        """Answer those who wait for work and have some now; all of them if the run is over. Any thread may call this."""
        everyone = self.service.driver.over is not None or self.service.draining
        self._waiting.wake(None if everyone else clients)


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


ROUTES = routes_of(Http, Administration)
"""The routes of every server."""
