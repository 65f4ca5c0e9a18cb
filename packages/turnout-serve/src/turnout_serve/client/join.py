"""Run one client in this process: carry out the actions of a `Client` over HTTP."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from turnout.core.checks import TurnoutError
from turnout.core.display import printable
from turnout.core.signals import Flag
from turnout_serve.client.calls import Answer, Call, JoinError, Sleep, Transfer, Untrusted, Work
from turnout_serve.client.connection import PLAIN, Connection
from turnout_serve.client.exchange import WatchedClient, send
from turnout_serve.client.newcomer import Newcomer
from turnout_serve.client.session import Client
from turnout_serve.wire.bodies import Run
from turnout_serve.wire.edge import Malformed
from turnout_serve.wire.format import PROTOCOL


class ServerSilent(TurnoutError):
    """The server has not answered for longer than the client waits."""


log = logging.getLogger("turnout.client")

_TELLS_EVERY = 60.0  # seconds between two lines about a server that does not answer
_LAST_REPORT = 60.0  # seconds for which a client that is to stop still sends a report
_GOODBYE = 10.0  # seconds that a server has to answer a client that leaves


def announcement(
    connection: Connection,
    patience: float = 0.0,
    stopped: Flag | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the description that a server gives of its run.

    Args:
        connection: connection to the server.
        patience: seconds for which to try again where it does not answer, or asks to wait.
        stopped: set to give up at once.
        notice: called once with the reason if the first attempt fails, and is repeated.

    Raises:
        JoinError: if there is no such server, or it speaks another protocol.
        ServerSilent: if the patience is exhausted.
    """
    stopped, begun, attempt = stopped or Flag(), time.monotonic(), 0
    with connection.client() as http:
        while True:
            answer = send(http, Call("GET", "/v1/run"), stopped.is_set)
            if answer.status not in (0, 429) and answer.status < 500:  # another attempt would have the same answer
                return _checked(answer, connection.url)
            waited = time.monotonic() - begun
            if (error := _final_error(answer, connection, waited, patience)) is not None:
                raise error
            if not attempt:
                notice(f"no answer from {connection.url} yet ({answer.reason}): trying again")
            attempt += 1
            pause = max(random.uniform(0.0, min(60.0, 0.5 * 2.0 ** min(attempt, 30))), answer.retry_after)
            if stopped.wait(min(pause, patience - waited)):
                raise ServerSilent("stopped")


def _final_error(answer: Answer, connection: Connection, waited: float, patience: float) -> TurnoutError | None:
    """Return the error for a server that does not describe its run; None where another attempt is worthwhile."""
    why, url = answer.reason, connection.url
    if not answer.status and answer.headers.get("kind") == "RemoteProtocolError" and connection.wants_certificate:
        return JoinError(f"{url} does not answer without a certificate: --certificate FILE --key FILE ({why})")
    if waited < patience:
        return None
    if patience:
        return ServerSilent(f"{url} has not answered for {waited:.0f} seconds: {why}")
    return JoinError(why if answer.status else f"there is no server at {url}: {why}")


def _checked(answer: Answer, url: str) -> dict[str, Any]:
    """Check the description of a run, and return it.

    Raises:
        JoinError: if it is not from a server of this protocol.
    """
    announced = answer.table() if answer.status == 200 else {}
    if "protocol" not in announced:
        raise JoinError(f"what answers at {url} is no turnout server")
    if announced["protocol"] != PROTOCOL:
        raise JoinError(
            f"the server speaks protocol {printable(announced['protocol'], 20)}, and this client {PROTOCOL}: "
            "update the older one"
        )
    try:
        Run.read(announced)
    except Malformed as error:
        raise JoinError(f"what answers at {url} describes its run in a form that is not allowed: {error}") from None
    return announced


class Joined:
    """Run a client until the run is over, or it is stopped.

    Args:
        client: yields actions.
        connection: connection to the server.
        stopped: set to stop the client. It finishes its computation, tries to send the report for a minute, and leaves.
        notice: called with every action before it is carried out.
        patience: seconds without any answer after which it gives up; None is never.
        sent: called with every request before it is sent. An exception ends the client, and the request is not sent.
    """

    def __init__(
        self,
        client: Client | Newcomer,
        connection: Connection,
        stopped: Flag | None = None,
        notice: Callable[[Any], None] = lambda _: None,
        patience: float | None = None,
        sent: Callable[[Call, Client | Newcomer], None] = lambda *_: None,
    ) -> None:
        self._client, self._connection = client, connection
        self._stopped, self._notice, self._sent = stopped or Flag(), notice, sent
        self._patience = math.inf if patience is None else patience
        self._silent_since: float | None = None
        self._was_heard = False
        self._told_at = 0.0
        self._stopped_at: float | None = None

    def run(self) -> str:
        """Carry out the actions of the client; return why it has ended.

        Raises:
            JoinError: if the server refuses this client.
            ServerSilent: if the server has not answered for too long.
        """
        with self._connection.client() as http, WatchedClient(timeout=self._connection.timeout, headers=PLAIN) as other:
            session, result = self._client.session(), None
            while True:
                try:
                    action = session.send(result)
                except StopIteration as over:
                    return str(over.value)
                if self._stopped.is_set() and not _delivers(action):
                    session.close()
                    leave = self._client.leave()
                    self._sent(leave, self._client)
                    with suppress(JoinError):  # whatever the server answers
                        send(http, leave, head=_GOODBYE)
                    return "stopped"
                self._notice(action)
                result = self._transfer(other, action) if isinstance(action, Transfer) else self._do(http, action)
                if type(action) is Call:
                    self._heard(result)

    def _late(self) -> bool:
        """Return whether a client that is to stop has tried to send its report for long enough."""
        if not self._stopped.is_set():
            return False
        self._stopped_at = time.monotonic() if self._stopped_at is None else self._stopped_at
        return time.monotonic() - self._stopped_at > _LAST_REPORT

    def _heard(self, answer: Answer) -> None:
        """Say when the server is away, and for how long; give up after too long without an answer."""
        now, is_heard = time.monotonic(), answer.is_of_server
        self._was_heard |= is_heard
        if is_heard and self._silent_since is not None:
            log.warning("the server answers again", extra={"away_seconds": round(now - self._silent_since)})
        if not is_heard and (self._silent_since is None or now - self._told_at >= _TELLS_EVERY):
            since = self._silent_since or now
            facts = {"server": self._connection.url, "for_seconds": round(now - since), "reason": answer.reason}
            log.warning("the server does not answer: trying again", extra=facts)
            self._told_at = now
        self._silent_since = None if is_heard else self._silent_since or now
        if self._silent_since is not None and now - self._silent_since >= self._patience:
            raise ServerSilent(f"{self._connection.url} has not answered for {now - self._silent_since:.0f} seconds")

    def _transfer(self, http: WatchedClient, transfer: Transfer) -> Answer:
        """Send a request to an object store, without the certificate and the token that are for the server."""
        if self._connection.url.startswith("https:") and not transfer.path.startswith("https:"):
            return Answer(0)  # with TLS to the server, reports are not sent to a store without
        try:
            return self._exchange(http, transfer)
        except JoinError as error:  # concerns the store alone: the report is sent to the server instead
            return Answer(0, headers={"error": str(error)})

    def _exchange(self, http: WatchedClient, call: Call) -> Answer:
        """Send a request, and heartbeats meanwhile.

        A server that has answered before may have let its certificate expire, or another machine, such as the login page of
        a network, may be in between: that is no answer, and no reason to leave for good.
        """
        self._sent(call, self._client)
        try:
            with _beating(self._connection, *call.heartbeat) if call.heartbeat else nullcontext():
                return send(http, call, self._late if _delivers(call) else self._stopped.is_set)
        except Untrusted as error:
            if not self._was_heard:
                raise
            return Answer(0, headers={"error": str(error)})

    def _do(self, http: WatchedClient, action: Any) -> Any:
        """Carry out an action, and return its result."""
        match action:
            case Call():
                return self._exchange(http, action)
            case Sleep(seconds=seconds):
                self._stopped.wait(seconds)
                return None
            case Work(function=function, heartbeat=heartbeat):
                with _beating(self._connection, *heartbeat):
                    return function()
        raise AssertionError(action)


def _delivers(action: Any) -> bool:
    """Return whether an action sends a report, which a client that is to stop still does."""
    return isinstance(action, Call) and action.method == "PUT"


@contextmanager
def _beating(connection: Connection, call: Call, every: float) -> Iterator[None]:
    """Send heartbeats from another thread while this one computes, or sends or receives what may be large."""
    done = threading.Event()

    def beat() -> None:
        if done.wait(every):  # most computations and requests end before the first heartbeat
            return
        with connection.client() as http:
            while not done.is_set():
                with suppress(JoinError):
                    send(http, call, done.is_set)
                done.wait(every)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
