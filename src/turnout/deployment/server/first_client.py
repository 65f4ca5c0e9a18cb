"""A server that knows no shape of examples yet, and waits for the first client to tell it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette import routing
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.deployment.server.app import PAGE_HEADERS
from turnout.deployment.server.openapi import document
from turnout.deployment.server.process import Options, make, new_codes, url_of, uvicorn_config
from turnout.deployment.server.requests import Strangers, body_of, later, respond
from turnout.deployment.server.sockets import PlainUvicorn
from turnout.deployment.server.status import metrics, page
from turnout.deployment.server.store import Store
from turnout.deployment.server.verdicts import Refused, hashed
from turnout.deployment.wire.data_shape import DataShape, shape_in
from turnout.deployment.wire.edge import text, whole
from turnout.deployment.wire.format import PROTOCOL
from turnout.record import lock

STATE = "waiting for the shape of the data"

Trial = Callable[[DataShape], DataShape]


class FirstClient:
    """Answer clients until one of them has told the shape of its examples. Nobody is enrolled meanwhile.

    A client tells the shape when it enrols. It is tried with the model of the run, noted beside the journal, and answered
    with 202; the client enrols again at the server that then begins. Requests are counted by the address of the
    connection, which behind a proxy is the proxy's.

    Args:
        store: where the shape is noted, and the one-time codes are.
        options: of the server.
        announcement: what is known of the run, as `turnout.deployment.server.process.Server` announces it, and its pace.
        trial: returns the shape with what the server declares of it, or raises `ConfigurationError` where it does not fit.
        rounds: server steps that are planned, for the status.

    Attributes:
        shape: what was noted; None as long as no client has come.
    """

    def __init__(
        self, store: Store, options: Options, announcement: dict[str, Any], trial: Trial, rounds: int = 0
    ) -> None:
        self._store, self._options, self._trial, self._rounds = store, options, trial, rounds
        self._announcement = {**announcement, "protocol": PROTOCOL, "run": store.run, "enrolment": options.enrolment}
        self._strangers = Strangers(options.rate, options.trusted)
        self._one = asyncio.Lock()  # shape that is tried at a time
        self._answers: dict[int, int] = {}
        self.shape: DataShape | None = None
        self.known = asyncio.Event()

    def app(self) -> routing.Router:
        """Return the application."""
        handlers = {
            "/v1/run": ("GET", self._run),
            "/v1/enrol": ("POST", self._enrol),
            "/v1/status": ("GET", self._status),
            "/metrics": ("GET", self._metrics),
            "/openapi.json": ("GET", self._openapi),
            "/": ("GET", self._page),
        }
        routes = [
            routing.Route(path, self._answering(handler), methods=[method])
            for path, (method, handler) in handlers.items()
        ]
        rest = routing.Route("/{path:path}", self._answering(self._later), methods=["GET", "POST", "PUT"])
        return routing.Router([*routes, rest], redirect_slashes=False)

    def _answering(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Return a handler whose errors are answers, too."""

        async def counted(request: Request) -> Response:
            self._strangers.stranger(request)
            return await handler(request)

        async def answered(request: Request) -> Response:
            response = await respond(request, counted, handler.__name__)
            self._answers[response.status_code] = self._answers.get(response.status_code, 0) + 1
            return response

        return answered

    async def _run(self, request: Request) -> Response:
        del request
        # The pace is for the status alone: clients get the fields that a server which serves has.
        return JSONResponse({name: value for name, value in self._announcement.items() if name != "pace"})

    async def _enrol(self, request: Request) -> Response:
        self._strangers.token(request)
        body = await body_of(request, self._options.limits.body_seconds)
        if (protocol := whole(body, "protocol", 0, 1 << 31, default=0)) != PROTOCOL:
            raise Refused(426, f"this server speaks protocol {PROTOCOL}, the client {protocol}: update it")
        code, shape = text(body, "code"), shape_in(body)
        if self._options.enrolment == "codes":
            unused = code is not None and self._store.codes().get(hashed(code), -1) is None
            if not unused:
                raise Refused(403, "this takes a one-time code that nobody has used: ask whoever runs the server")
        if shape is None:
            return later("this server waits for the first client that tells the shape of its data")
        async with self._one:
            if self.shape is None:
                self.shape = await asyncio.to_thread(self._noted, shape)
                self.known.set()
        try:
            self.shape.check(shape)
        except ConfigurationError as error:
            raise Refused(422, str(error)) from None
        return JSONResponse(self.shape.settings(), 202)

    def _noted(self, told: DataShape) -> DataShape:
        """Try a shape, and note it."""
        try:
            shape = self._trial(told)
        except TurnoutError as error:
            raise Refused(422, f"{error} (the examples of this client have {told})") from None
        return DataShape.read(self._store.note_shape(shape.settings()))

    async def _status(self, request: Request) -> Response:
        del request
        return JSONResponse(self.status())

    async def _metrics(self, request: Request) -> Response:
        del request
        return PlainTextResponse(metrics(self.status()), media_type="text/plain; version=0.0.4")

    async def _openapi(self, request: Request) -> Response:
        del request
        return JSONResponse(document())

    async def _page(self, request: Request) -> Response:
        del request
        return HTMLResponse(page(), headers=PAGE_HEADERS)

    async def _later(self, request: Request) -> Response:
        del request
        return later("this server waits for the first client")

    def status(self) -> dict[str, Any]:
        """Return the figures of a run that has none yet, as `turnout.deployment.server.status.status` has them."""
        named = {name: self._announcement[name] for name in ("run", "algorithm", "pace")}
        zeros = dict.fromkeys(("version", "enrolled", "there", "at_work", "waiting", "seconds", "journal"), 0)
        empty: dict[str, Any] = {name: {} for name in ("dropped", "barred", "curves", "heard")}
        return {
            **named, **zeros, **empty, "rounds": self._rounds, "state": STATE, "failure": None, "healthy": True,
            "needed": self._options.min_clients, "privacy": None, "evaluation": None,
            "answers": {str(code): number for code, number in sorted(self._answers.items())},
        }  # fmt: skip


def first_shape(
    folder: Path,
    options: Options,
    announcement: dict[str, Any],
    trial: Trial,
    rounds: int = 0,
    ready: Callable[[str, list[str]], None] = lambda *_: None,
) -> DataShape | None:
    """Return the shape of the examples of the first client of a run: that which is noted, or which one tells now.

    Args:
        folder: of the run.
        options, announcement, trial, rounds: as `FirstClient` has them.
        ready: called with the address and new one-time codes once the server waits.

    Returns:
        The shape; None where the server was told to stop before a client came.

    Raises:
        CheckpointError: for a folder that another server uses.
        ConfigurationError: for a folder of a run whose shape was declared.
    """
    make(folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock.locked(folder))
        store = Store(folder, options.database, options.store)
        stack.callback(store.close)
        store.claim()
        if (noted := store.shape) is not None:
            return DataShape.read(noted)
        if next(store.entries(), None) is not None:
            raise ConfigurationError(
                f"inputs: got 'auto', but the run in {folder} has another declaration: write --inputs as when it began"
            )
        codes = new_codes(store, options, options.max_clients or 1000)
        first = FirstClient(store, options, announcement, trial, rounds)
        server = PlainUvicorn(uvicorn_config(first.app(), options))

        async def serve() -> None:
            task = asyncio.create_task(server.serve())
            while not server.started and not task.done():
                await asyncio.sleep(0.01)
            if server.started:
                ready(url_of(server, options), codes)
            known = asyncio.create_task(first.known.wait())
            await asyncio.wait([task, known], return_when=asyncio.FIRST_COMPLETED)
            known.cancel()
            await asyncio.sleep(0.05 if first.known.is_set() else 0.0)  # the answer goes out first
            server.should_exit = True
            await task

        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(serve())
        return first.shape
