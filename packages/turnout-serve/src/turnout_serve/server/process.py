"""Run a server: open the folder and the journal of a run, and serve it over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from turnout.configuration import Configuration
from turnout.core.checks import CheckpointError, Diverged
from turnout.record.describe import agreed
from turnout.record.lock import FolderGone
from turnout.record.storage import replace_files
from turnout_serve.server.address import note_address
from turnout_serve.server.enrollment import hashed
from turnout_serve.server.http.app import Http
from turnout_serve.server.http.sockets import bounded
from turnout_serve.server.http.uvicorn_server import PlainUvicorn
from turnout_serve.server.journal.recovery import opened
from turnout_serve.server.options import Options
from turnout_serve.server.run.blame import PieceFailed
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.run.training import secure, training
from turnout_serve.server.service import Service
from turnout_serve.server.store.database import StoreLost
from turnout_serve.server.store.store import Store
from turnout_serve.wire.administrator import CODES_FILE, server_token
from turnout_serve.wire.data_shape import DataShape
from turnout_serve.wire.format import PROTOCOL, plain
from turnout_serve.wire.surveys import manifest_of

log = logging.getLogger("turnout.server")


class Server:
    """Serve a run between real machines.

    Args:
        experiment: what is run; clients that enroll take the place of its population.
        folder: folder of the run, which is created, or continued if it holds this run.
        settings: settings of the experiment, from which clients build their part; None where they have to bring their
            own.
        options: options of the server.

    Attributes:
        head: link of the last entry of the journal, once the server has stopped.

    Raises:
        ConfigurationError: if an experiment cannot be deployed.
        CheckpointError: if another server uses the folder, or it holds another run.
    """

    def __init__(
        self,
        experiment: Configuration,
        folder: Path,
        settings: dict[str, Any] | None = None,
        options: Options | None = None,
    ) -> None:
        folder = folder.absolute()  # pieces may change the working directory
        options, self.folder, self.experiment = options or Options(), folder, experiment
        leases = options.leases
        limits = options.max_norm, leases.task_deadline, options.max_examples, options.min_answers
        self.served = ServedExperiment.of(experiment, leases.heartbeat, *limits)
        self.setting = self.served.setting
        most = self.setting.check_clients(options.min_clients, options.max_clients)
        self.options = replace(options, max_clients=most)
        self.head: str | None = None
        make(folder)
        if self.setting.algorithm.privacy is not None and folder.stat().st_mode & 0o077:
            log.warning(f"others can read {folder}, and with it the secret that noise is made of: chmod 700 {folder}")
        self._lock = contextlib.ExitStack()
        try:
            self.driver, last = self._lock.enter_context(
                opened(folder, self.setting, self.options.database, self.options.store, self.options.min_clients)
            )
            self.store = self.driver.store
            if self.driver.run is None:
                experiment.check_budget()
            administrator = hashed(server_token(folder))
            self.new_codes = new_codes(self.store, self.options)
            self.service = Service(self.driver, last, self.options)
        except BaseException:
            self._lock.close()
            raise
        shape = DataShape.of(experiment.data)
        self.http = Http(self.service, self.announcement(settings), self.options, administrator, shape)

    def announcement(self, settings: dict[str, Any] | None) -> dict[str, Any]:
        """Return the description of the run for clients before they enroll, as plain values."""
        described = (
            self.setting.algorithm,
            self.served.objective,
            self.setting.seed,
            self.setting.reports["train"].manifest,
            self.experiment.population.opting is not None,
        )
        return {
            "protocol": PROTOCOL,
            "run": self.store.facts.run,
            "algorithm": self.setting.algorithm.name,
            "engine": self.served.objective.engine,
            "settings": settings,
            "describes": agreed(self.setting.description),
            "num_classes": self.experiment.data.num_classes,
            "input_shape": list(self.experiment.data.input_shape),
            "data": None if self.store.facts.shape is None else DataShape.of(self.experiment.data).settings(),
            "enrolment": self.options.enrollment,
            "evaluation": {
                "report": plain(manifest_of(self.setting.sums.shapes)),
                "groups": self.setting.sums.facts["groups"],
            },
            "sees": [vars(item) for item in self.served.visible],
            "training": training(*described),
            "secure": secure(*described),
        }

    def application(self) -> ASGIApp:
        """Return the ASGI application."""
        return self.http.app()

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Serve in another thread, and yield the address. For tests, demos and benchmarks."""
        server = http_server(self.application(), self.options)
        thread = threading.Thread(target=server.run, daemon=True)
        self.service.writer.start()
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield note_address(self.store, server, self.options)
        finally:
            self.service.writer.draining = server.should_exit = True
            self.service.writer.notify(())
            thread.join()
            self.stop()

    def run(self, ready: Callable[[str], None] = print) -> str:
        """Serve until the run is over or the process is stopped; return the reason."""
        server = http_server(self.application(), self.options)
        self.service.writer.start()
        try:
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(self._serve(server, ready))
        finally:
            self.stop()
        failure, unsaved = self.service.writer.failure, self.service.writer.checkpoints.error
        if isinstance(failure, Diverged | PieceFailed | StoreLost | FolderGone):
            raise failure
        if failure is not None:
            raise CheckpointError(
                f"the server could not go on: {failure!r}. Start it again: it goes on from its journal"
            ) from failure
        if unsaved is not None:
            raise CheckpointError(
                f"the last checkpoint is missing: {unsaved}. Start the server again: it goes on from its journal"
            )
        return self.driver.over or "stopped"

    async def _serve(self, server: PlainUvicorn, ready: Callable[[str], None]) -> None:
        """Serve until the HTTP server stops, and have it stop some time after the run is over."""
        async with server.listening() as task:
            if not server.should_exit:  # a server that is stopped at once has closed its socket
                url = note_address(self.store, server, self.options)
                ready(self.options.public_url or url)
            over: float | None = None
            while not task.done():
                await asyncio.sleep(0.1)
                ended = self.driver.over is not None or self.service.writer.failure is not None
                over = (over or time.monotonic()) if ended else None
                if over is not None and time.monotonic() - over > self.options.linger:
                    server.should_exit = True
                if server.has_reloaded:
                    server.has_reloaded = False
                    try:
                        note_address(self.store, server, self.options)
                    except CheckpointError as error:  # the clients of the server are served all the same
                        log.error("the address and the certificate cannot be written", extra={"reason": str(error)})
                if self.service.writer.stopping or server.should_exit:
                    self.service.writer.draining = server.should_exit = True
                    self.http.waiting.wake()

    def stop(self) -> None:
        """Write all events, save a checkpoint, and unlock the folder."""
        try:
            self.service.writer.stop()
            with contextlib.suppress(CheckpointError):  # of a database that is gone
                self.head = self.store.link(self.driver.applied)
        finally:
            self._lock.close()


def make(folder: Path) -> None:
    """Create the folder of a run, readable for its owner only.

    Raises:
        CheckpointError: if it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be used: {error}. Give another --folder") from None


def new_codes(store: Store, options: Options) -> list[str]:
    """Create the first one-time codes of a run, one for each client, up to 1,000; return none where it has codes."""
    if options.enrollment != "codes" or store.codes():
        return []
    codes = [secrets.token_urlsafe(12) for _ in range(min(options.max_clients or 1000, 1000))]
    # Whatever is there is replaced: codes go neither through a link nor to a file that others can read.
    write = partial(Path.write_text, data="\n".join(codes) + "\n", encoding="utf-8")
    replace_files({store.folder / CODES_FILE: write}, private=True)
    store.add_codes([hashed(code) for code in codes])
    return codes


def http_server(app: ASGIApp, options: Options) -> PlainUvicorn:
    """Return the HTTP server of an application, with the limits and the certificate of the options."""
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http=bounded(options.limits, options.proxies, options.trusted),
        ws="none",
        log_config=None,
        log_level="error",  # it warns of every malformed request
        access_log=False,
        server_header=False,
        proxy_headers=False,  # `Proxies` reads them
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        backlog=4096,
    )
    return PlainUvicorn(config, options.tls)
