"""The routes by which clients report on a task, renew it and give it up."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout_serve.server.http.endpoints import answer, written
from turnout_serve.server.http.limits import Limits
from turnout_serve.server.http.requests import digest_of, header
from turnout_serve.server.http.routes import BINARY, route
from turnout_serve.server.http.uploads import Uploads
from turnout_serve.server.run.usual import UsualSizes
from turnout_serve.server.service import Service
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire import bodies
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import LARGE, WireError, size_limit
from turnout_serve.wire.messages import PhaseFormat, ReportFormat
from turnout_serve.wire.surveys import SumsFormat

log = logging.getLogger("turnout.http")

_NO_TASK = {404: "The client has no such task."}
_STATE = (bodies.TaskState, "The state of the task: whether a report is still wanted.")


class TaskRoutes:
    """The endpoints of clients with a task.

    Args:
        service: answers the requests.
        limits: limits of uploads.
    """

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._uploads = Uploads(service, limits)
        self._large = asyncio.Lock()  # one large report is checked at a time, for it is read into memory

    @route(
        "GET",
        "/v1/tasks/{task}",
        {
            200: (bodies.TaskState, "The state of the task; of an open one, how many bytes of a report have arrived."),
            **_NO_TASK,
        },
    )
    async def task(self, client: int, task: int) -> Response:
        """Ask for the state of a task."""
        verdict = self._service.state_of(client, task)
        if verdict.body["state"] == "open":
            verdict.body["offset"] = self._uploads.offset(client, task)
            verdict.body.update(links_of(self._service, client, task))
        return answer(verdict)

    @route("POST", "/v1/tasks/{task}/heartbeat", {200: _STATE, **_NO_TASK})
    async def heartbeat(self, client: int, task: int) -> Response:
        """Renew the lease of a task."""
        return answer(self._service.heartbeat(client, task))

    @route(
        "POST", "/v1/tasks/{task}/fail", {200: (bodies.Nothing, "The task has ended."), **_NO_TASK}, body=bodies.Fail
    )
    async def fail(self, client: int, task: int, body: bodies.Fail) -> Response:
        """Give a task up."""
        await written(self._service.fail(client, task, body.reason or "died"))
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
            411: "The request has neither Content-Length nor a body in chunks.",
            413: "The report is larger than one on this task can be; the task has ended.",
            422: "The report is not what was asked for; the task has ended.",
            **_NO_TASK,
        },
        body=BINARY,
        headers={
            "repr-digest": (r"sha-256=:[A-Za-z0-9+/]{43}=:", True),
            "upload-length": (r"^[0-9]{1,15}$", False),
            "upload-offset": (r"^[0-9]{1,15}$", False),
            "task-fingerprint": (r"^[0-9a-f]{32}$", False),
            "last-task": (r"^([0-9]{1,15}|none)$", False),
        },
    )
    async def report(self, request: Request, client: int, task: int) -> Response:
        """Send a report, or the missing part of it."""
        digest = digest_of(request)
        if (outcome := self._service.outcome(client, task)) is not None:
            return answer(outcome.answer(digest))
        if (assignment := self._service.driver.tasks.get(client, task)) is None:
            raise Refused(503, "the task has just ended, and its outcome is not known yet: ask again")
        if (header(request, "task-fingerprint") or assignment.fingerprint) != assignment.fingerprint:
            raise Refused(410, "this number is another task's by now: the server was restored from a copy")
        self._service.check_state(client, header(request, "last-task"))
        try:
            return await self._taken(request, client, assignment, digest)
        except Refused as refused:
            if refused.verdict.status == 413:  # the client drops the report
                await written(self._service.fail(client, task, "died", str(refused)))
            raise

    async def _taken(self, request: Request, client: int, assignment: Assignment, digest: str) -> Response:
        """Receive and check a report on an open task, and return the answer once it is in the journal."""
        task, expected = assignment.task, self._service.driver.setting.expected(assignment)
        async with self._uploads.received(request, client, task, digest, size_limit(expected.manifest)) as file:
            try:
                sizes = await check(expected, file, client, assignment, self._large, self._service.usual)
                if (files := self._service.store.files).takes_uploads:
                    await asyncio.to_thread(files.admit, file, digest)  # before the journal names it
            except BaseException as error:  # also of the disk, after which the client sends the report again
                file.unlink(missing_ok=True)
                if not isinstance(error, WireError):
                    raise
                await written(self._service.fail(client, task, "died", str(error)))
                raise Refused(422, str(error)) from None
            return answer(await written(self._service.report(client, task, digest, file, sizes)))


def links_of(service: Service, client: int, task: int) -> dict[str, Any]:
    """Return the field of an answer with the links of an open task, where the run has an object store."""
    files, assignment = service.store.files, service.driver.tasks.get(client, task)
    if not files.takes_uploads or assignment is None:
        return {}
    limit = size_limit(service.driver.setting.expected(assignment).manifest)
    links = files.links(client, assignment.model, assignment.size, limit)
    return {"store": links} if links else {}


async def check(
    expected: ReportFormat | PhaseFormat | SumsFormat,
    file: Path,
    client: int,
    assignment: Assignment,
    large: asyncio.Lock,
    usual: UsualSizes | None = None,
) -> dict[str, float]:
    """Check a report, and return the sizes of its vectors; large ones are checked in a thread of their own, in turn.

    Raises:
        WireError: if it is not what was asked for.
    """
    maps = file.stat().st_size >= LARGE
    sizes: dict[str, float] = {}

    def read() -> None:
        try:
            if isinstance(expected, ReportFormat):
                body = file if maps else file.read_bytes()
                report = expected.read(body, client, assignment.version, assignment.repeat)
                if usual is not None and assignment.phase == "train" and not expected.takes_nan:
                    sizes.update(usual.check(client, report))
            else:
                expected.read(file.read_bytes())
        except (WireError, OSError):
            raise
        except Exception as error:
            log.exception("a report cannot be read", extra={"client": client, "task": assignment.task})
            raise WireError("the report cannot be read") from error

    async with large if maps else nullcontext():
        await asyncio.to_thread(read) if file.stat().st_size > 1 << 20 else read()
    return sizes
