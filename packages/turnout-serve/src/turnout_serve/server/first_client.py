"""Wait for the first client to report the shape of its examples, on a server that has no data."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnout.core.checks import ConfigurationError, TurnoutError
from turnout.record import lock
from turnout_serve.server.address import note_address
from turnout_serve.server.enrollment import NEEDS_CODE, hashed
from turnout_serve.server.http.app import ROUTES
from turnout_serve.server.http.endpoints import Endpoints
from turnout_serve.server.http.gate import Strangers
from turnout_serve.server.http.routes import Sender
from turnout_serve.server.http.status import as_fields
from turnout_serve.server.http.uvicorn_server import PlainUvicorn
from turnout_serve.server.options import Options
from turnout_serve.server.process import http_server, make, new_codes
from turnout_serve.server.store.store import Store
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.administrator import server_token
from turnout_serve.wire.bodies import Enroll
from turnout_serve.wire.data_shape import DataShape
from turnout_serve.wire.format import PROTOCOL
from turnout_serve.wire.status import Status

STATE = "waiting for the shape of the data"

Trial = Callable[[DataShape], DataShape]


class FirstClient(Endpoints):
    """Answer clients until one of them has reported the shape of its examples. No client is enrolled meanwhile.

    A client reports the shape when it enrolls. The server tries the model on it, writes it beside the journal, and answers
    202; the client enrolls again at the server that then starts.

    Args:
        store: the database, with one-time codes.
        options: options of the server.
        announcement: known fields of `turnout_serve.server.process.Server.announcement`, and the pace.
        trial: function that returns the shape with what the server declares of it, or raises `ConfigurationError` where
            it does not fit.
        rounds: server steps that are planned, for the status.

    Attributes:
        shape: shape of the first client; None before.
        known: set once there is a shape.
    """

    def __init__(
        self, store: Store, options: Options, announcement: dict[str, Any], trial: Trial, rounds: int = 0
    ) -> None:
        # The pace is for the status alone: clients get the fields of a server that has begun.
        described = {name: value for name, value in announcement.items() if name != "pace"}
        described |= {"protocol": PROTOCOL, "run": store.facts.run, "enrolment": options.enrollment}
        methods = {route.name: getattr(self, route.name, self.enroll) for route in ROUTES}
        super().__init__(ROUTES, methods, self._admitted, described, options)
        self._store, self._trial = store, trial
        self._strangers = Strangers(options, hashed(server_token(store.folder)))
        self._status = Status(
            run=store.facts.run,
            algorithm=announcement.get("algorithm", ""),
            pace=announcement.get("pace", ""),
            rounds=rounds,
            state=STATE,
            needed=options.min_clients,
            **dict.fromkeys(("version", "enrolled", "there", "at_work"), 0),
        )
        self._lock = asyncio.Lock()  # one shape is tried at a time
        self.shape: DataShape | None = None
        self.known = asyncio.Event()

    def figures(self) -> Status:
        """Return the status of a run that has not begun."""
        return self._status.model_copy(update={"answers": as_fields(self.counts)})

    def _admitted(self, sender: Sender, request: Request) -> dict[str, Any]:
        """Admit the sender of a request of a route that needs no run; ask all others to try again later."""
        if sender in ("client", "administrator"):
            self._strangers.count(request)
            raise Refused(503, "this server waits for the first client")
        return self._strangers.admit(sender, request)

    async def enroll(self, request: Request, token: str, body: Enroll) -> Response:
        """Record the shape of the first client, and compare later ones with it."""
        del request, token
        if self._options.enrollment == "codes":
            unused = body.code is not None and self._store.codes().get(hashed(body.code), -1) is None
            if not unused:
                raise Refused(403, NEEDS_CODE)
        if body.data is None:
            raise Refused(503, "this server waits for a client that reports the shape of its data")
        async with self._lock:
            if self.shape is None:
                self.shape = await asyncio.to_thread(self._recorded, body.data)
                self.known.set()
        try:
            self.shape.check(body.data)
        except ConfigurationError as error:
            raise Refused(422, str(error)) from None
        return JSONResponse(self.shape.settings(), 202)

    def _recorded(self, shape: DataShape) -> DataShape:
        """Try the model on a shape, and record it."""
        try:
            declared = self._trial(shape)
        except TurnoutError as error:
            raise Refused(422, f"{error} (the examples of this client have {shape})") from None
        return DataShape.read(self._store.facts.set_shape(declared.settings()))


def first_shape(
    folder: Path,
    options: Options,
    announcement: dict[str, Any],
    trial: Trial,
    rounds: int = 0,
    ready: Callable[[str, list[str]], None] = lambda *_: None,
) -> DataShape | None:
    """Return the shape of the examples of a run's clients, and wait for the first client if it is not recorded yet.

    Args:
        folder: folder of the run.
        options, announcement, trial, rounds: see `FirstClient`.
        ready: called with the address and new one-time codes once the server listens.

    Returns:
        The shape; None where the server was stopped before a client came.

    Raises:
        CheckpointError: if another server uses the folder.
        ConfigurationError: if the folder is that of a run whose shape was declared.
    """
    make(folder)
    with lock.locked(folder), contextlib.closing(Store(folder, options.database, options.store)) as store:
        store.claim()
        if (recorded := store.facts.shape) is not None:
            return DataShape.read(recorded)
        if next(store.entries(), None) is not None:
            raise ConfigurationError(
                f"inputs: got 'auto', but the run in {folder} has another declaration: write --inputs as when it began"
            )
        codes = new_codes(store, options)
        first = FirstClient(store, options, announcement, trial, rounds)
        server = http_server(first.app(), options)

        def listening() -> None:
            ready(note_address(store, server, options), codes)

        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(_serve(server, first, listening))
        return first.shape


async def _serve(server: PlainUvicorn, first: FirstClient, ready: Callable[[], None]) -> None:
    """Serve until the first client has reported a shape, or the process is stopped."""
    async with server.listening() as task:
        if not server.should_exit:
            ready()
        known = asyncio.create_task(first.known.wait())
        await asyncio.wait([task, known], return_when=asyncio.FIRST_COMPLETED)
        known.cancel()
        await asyncio.sleep(0.05 if first.known.is_set() else 0.0)  # until the answer is sent
