"""One client in a process of its own: sends, sleeps and computes what a `Client` wants."""

from __future__ import annotations

import math
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from turnout.core.checks import ConfigurationError, TurnoutError, positive
from turnout.deployment.client import Answer, Call, Client, JoinError, Sleep, Work
from turnout.deployment.wire import PROTOCOL


class ServerSilent(TurnoutError):
    """The server has not answered for as long as a client waits."""


@dataclass(frozen=True)
class Connection:
    """Where a server is, and how to trust it.

    Attributes:
        url: its address, ``https://...``, or ``http://...`` on this machine.
        ca: a file with the certificate of who signed the server's; None is those that the system trusts.
        certificate, key: files by which the client proves who it is, where the server asks for that.
        timeout: seconds without a sign of life of the server.

    Raises:
        ConfigurationError: for an address that is none, or files that cannot be used.
    """

    url: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout: float = 90.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigurationError(f"url: got {self.url!r}, needed https://HOST:PORT, or http://HOST:PORT")

    def trust(self) -> ssl.SSLContext | bool:
        """Return how certificates are checked."""
        if self.ca is None and self.certificate is None:
            return True
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"certificate: {error}") from None
        return context

    def client(self) -> httpx2.Client:
        """Return an HTTP client that waits for one thing at a time."""
        return httpx2.Client(base_url=self.url, verify=self.trust(), timeout=self.timeout)


def announcement(connection: Connection) -> dict[str, Any]:
    """Return what a server says of its run.

    Raises:
        JoinError: where there is no such server, or it speaks another protocol.
    """
    with connection.client() as http:
        try:
            answer = http.get("/v1/run")
            found = answer.json() if answer.status_code == 200 else None
        except (httpx2.HTTPError, ValueError) as error:
            raise JoinError(f"there is no server at {connection.url}: {error or type(error).__name__}") from None
    if not isinstance(found, dict) or "protocol" not in found:
        raise JoinError(f"what answers at {connection.url} is no turnout server")
    if found["protocol"] != PROTOCOL:
        raise JoinError(
            f"the server speaks protocol {found['protocol']}, and this client {PROTOCOL}: update the older one"
        )
    return found


class Joined:
    """A client that works for a server until the run is over, or it is told to stop.

    Args:
        client: what it wants.
        connection: where the server is.
        stopped: set when it should go; it finishes what it computes, and tells the server.
        notice: called with every action before it is done.
        patience: seconds without any answer after which it gives up; None is never.
    """

    def __init__(
        self,
        client: Client,
        connection: Connection,
        stopped: threading.Event | None = None,
        notice: Callable[[Any], None] = lambda _: None,
        patience: float | None = None,
    ) -> None:
        if patience is not None:
            positive("patience", patience)
        self._client, self._connection = client, connection
        self._stopped, self._notice = stopped or threading.Event(), notice
        self._patience = math.inf if patience is None else patience
        self._silent_since: float | None = None

    def run(self) -> str:
        """Work; return why it is over.

        Raises:
            JoinError: where the server does not want this client.
            ServerSilent: where it has not answered for too long.
        """
        with self._connection.client() as http:
            session, result = self._client.session(), None
            while True:
                try:
                    action = session.send(result)
                except StopIteration as over:
                    return str(over.value)
                if self._stopped.is_set() and not (isinstance(action, Call) and action.method == "PUT"):
                    session.close()
                    send(http, self._client.leave())
                    return "stopped"
                self._notice(action)
                result = self._do(http, action)
                if isinstance(result, Answer):
                    self._heard(result)

    def _heard(self, answer: Answer) -> None:
        """Give up where nothing has come back for too long."""
        now = time.monotonic()
        self._silent_since = None if answer.status else self._silent_since or now
        if self._silent_since is not None and now - self._silent_since >= self._patience:
            raise ServerSilent(f"{self._connection.url} has not answered for {now - self._silent_since:.0f} seconds")

    def _do(self, http: httpx2.Client, action: Any) -> Any:
        """Do what the client wants, and return what came of it."""
        match action:
            case Call():
                return send(http, action)
            case Sleep(seconds=seconds):
                self._stopped.wait(seconds)
                return None
            case Work(function=function, heartbeat=heartbeat, every=every):
                with _beating(self._connection, heartbeat, every):
                    return function()
        raise AssertionError(action)


def send(http: httpx2.Client, call: Call) -> Answer:
    """Send a request; of an answer that is cut short, what has come is returned."""
    content, headers = call.content
    received = bytearray()
    status, answered = 0, {}
    try:
        with http.stream(call.method, call.path, content=content, headers=headers) as response:
            status, answered = response.status_code, dict(response.headers)
            for piece in response.iter_raw():
                received += piece
    except httpx2.HTTPError:
        status = status if status in (200, 206) and call.path.startswith("/v1/models/") else 0
    return Answer(status, bytes(received), answered)


class _beating:  # noqa: N801 - used as a statement
    """Send signs of life from another thread while this one computes."""

    def __init__(self, connection: Connection, call: Call, every: float) -> None:
        self._connection, self._call, self._every = connection, call, every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> None:
        self._begun = time.monotonic()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _beat(self) -> None:
        if self._done.wait(self._every):  # most tasks are done before one is due
            return
        with self._connection.client() as http:
            while True:
                with suppress(httpx2.HTTPError):
                    send(http, self._call)
                if self._done.wait(self._every):
                    return
