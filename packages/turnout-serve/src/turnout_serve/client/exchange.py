"""Send requests with a limit on the whole time and size of the answer, also where a server sends one byte at a time.

A timeout of httpx starts again with each byte. Here all reads and writes pass a `Watch`, which also checks several times per
second whether the client is to stop.
"""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import httpcore2
import httpx2

from turnout.core.display import printable
from turnout_serve.client.calls import Answer, Call, JoinError, Untrusted

_STEP = 0.25  # seconds between two checks
_PIECE = 1 << 16  # bytes that are written between two checks


@cache
def system_trust() -> ssl.SSLContext:
    """Return the TLS context that trusts the certificates of the system; it is cached, for to read them takes 20 ms."""
    return httpx2.create_ssl_context()


class Watch:
    """Deadline of an exchange.

    Args:
        head: seconds from the end of a request to the end of the headers of its answer.
    """

    def __init__(self, head: float) -> None:
        self._head = head
        self.begin()

    def begin(self, stopped: Callable[[], bool] = lambda: False, head: float | None = None) -> None:
        """Begin a request.

        Args:
            stopped: function that returns True to give up.
            head: as for the class, for this request alone.
        """
        self._stopped, self._seconds = stopped, self._head if head is None else head
        self.wrote()

    def wrote(self) -> None:
        """Extend the deadline, because a part of the request was sent."""
        self._until = time.monotonic() + self._seconds

    def headed(self) -> None:
        """Remove the deadline at the end of the headers; that of the body is in `Incoming`."""
        self._until = math.inf

    def check(self, error: type[Exception]) -> None:
        """Raise an error after the deadline, or if the client is to stop."""
        if self._stopped() or time.monotonic() > self._until:
            raise error("the exchange takes too long, or is to stop")


class WatchedClient(httpx2.Client):
    """An HTTP client of one thread.

    Args:
        options: of `httpx2.Client`; the timeout also limits the time to the end of the headers of an answer. Without
            ``verify``, it trusts the certificates that the system trusts.

    Attributes:
        watch: deadline of the present exchange.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"verify": system_trust(), **options})
        self.watch = Watch(self.timeout.read or math.inf)
        for transport in (self._transport, *self._mounts.values()):
            if isinstance(transport, httpx2.HTTPTransport):
                pool: Any = transport._pool
                pool._network_backend = _Backend(pool._network_backend, self.watch)


class _Backend(httpcore2.NetworkBackend):
    """Network backend whose connections are watched."""

    def __init__(self, backend: httpcore2.NetworkBackend, watch: Watch) -> None:
        self._backend, self._watch = backend, watch

    def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore2.NetworkStream:
        return _Stream(self._backend.connect_tcp(*arguments, **options), self._watch)

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream(httpcore2.NetworkStream):
    """A connection whose reads and writes are watched."""

    def __init__(self, stream: httpcore2.NetworkStream, watch: Watch) -> None:
        self._stream, self._watch = stream, watch

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Wait in steps, and check the watch in between."""
        begun, most = time.monotonic(), math.inf if timeout is None else timeout
        while True:
            self._watch.check(httpcore2.ReadTimeout)
            left = most - (time.monotonic() - begun)
            try:
                return self._stream.read(max_bytes, max(0.001, min(_STEP, left)))
            except httpcore2.ReadTimeout:
                if left <= _STEP:
                    raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write in pieces, and check the watch in between."""
        for start in range(0, len(buffer), _PIECE):
            self._watch.check(httpcore2.WriteTimeout)
            self._stream.write(buffer[start : start + _PIECE], timeout)
            self._watch.wrote()

    def close(self) -> None:
        self._stream.close()

    def start_tls(self, *arguments: Any, **options: Any) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(*arguments, **options), self._watch)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Incoming:
    """An answer that arrives, limited in bytes and seconds.

    Args:
        call: the request.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._status, self._headers, self._body = 0, dict[str, str](), bytearray()
        self._until = math.inf

    def begin(self, response: httpx2.Response) -> None:
        """Take the status and the headers."""
        self._status, self._headers = response.status_code, dict(response.headers)
        self._until = time.monotonic() + self._call.seconds

    def add(self, piece: bytes) -> None:
        """Take a piece of the body, without decoding it.

        Raises:
            JoinError: if the body is too long.
            httpx2.ReadTimeout: if it takes too long.
        """
        if len(self._body) + len(piece) > self._call.most:
            raise JoinError(
                f"the server's answer to {self._call.path.partition('?')[0]} has more than {self._call.most:,} bytes"
            )
        self._body += piece
        if time.monotonic() > self._until:
            raise httpx2.ReadTimeout("the answer takes too long")

    def answer(self, error: httpx2.HTTPError | None = None) -> Answer:
        """Return the answer; after an error, the received part of a model, or status 0.

        Raises:
            Untrusted: if one side does not trust the certificate of the other.
        """
        if error is None:
            return Answer(self._status, bytes(self._body), self._headers)
        if (failure := _of_tls(error)) is not None:
            url = error.request.url
            raise Untrusted(f"no connection to {url.scheme}://{url.netloc.decode()}: {_remedy(failure)} ({failure})")
        if self._status in (200, 206) and self._call.resumes:
            return Answer(self._status, bytes(self._body), self._headers)
        why = printable(error or type(error).__name__, 200)
        if isinstance(error, httpx2.RemoteProtocolError) and error.request.url.scheme == "http":
            why += " If the server has a certificate, write https://"
        return Answer(0, headers={"error": why, "kind": type(error).__name__})


def _of_tls(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error that caused an error, if it concerns certificates and so may occur again; None otherwise."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    lasting = error is not None and any(
        word in (error.reason or "") for word in ("CERT", "UNKNOWN_CA", "WRONG_VERSION")
    )
    return error if lasting else None


def _remedy(failure: ssl.SSLError) -> str:
    """Return what a TLS error means, and what its user can do."""
    if "WRONG_VERSION" in (failure.reason or ""):
        return "what answers there has no TLS: write http:// if the server has no certificate"
    match getattr(failure, "verify_code", None):
        case None:
            return (
                "the server does not accept the certificate of this client, or needs one: --certificate FILE --key FILE"
            )
        case 62 | 64:  # host name and IP address
            return "the certificate of the server is for another name: write the address that it names"
        case 9 | 10:
            return "the certificate of the server is not valid yet, or no longer, by the clock of this machine"
    return (
        "this machine does not trust the certificate of the server: give --ca FILE with it, or with that of the authority "
        "that signed it"
    )


def send(
    http: WatchedClient, call: Call, stopped: Callable[[], bool] = lambda: False, head: float | None = None
) -> Answer:
    """Send a request and return the answer; of an interrupted download, the received part.

    Args:
        http: sends it.
        call: the request.
        stopped: function that returns True to give up.
        head: seconds to the end of the headers of the answer; None is the timeout of the client.
    """
    content, headers = call.content
    incoming = Incoming(call)
    http.watch.begin(stopped, head)
    try:
        with http.stream(call.method, call.path, content=content, headers=headers) as response:
            http.watch.headed()
            incoming.begin(response)
            for piece in response.iter_raw():
                incoming.add(piece)
    except httpx2.HTTPError as error:
        return incoming.answer(error)
    return incoming.answer()
