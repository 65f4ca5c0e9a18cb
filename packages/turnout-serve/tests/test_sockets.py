"""Connections of strangers: what they may send, how long it may take, and how many there may be."""

import contextlib
import gc
import json
import resource
import socket
import ssl
import struct
import threading
import time

import pytest

from turnout_serve.server.http import sockets
from turnout_serve.server.http.limits import Limits, Peers
from turnout_serve.server.http.sockets import bounded
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server

from .conftest import scratch
from .test_hostile import RUN
from .test_network import certificates  # noqa: F401

QUICK = Limits(head_seconds=0.3, body_seconds=0.3, write_seconds=0.3, stall_seconds=0.3, connections=100)
TOKEN = b"authorization: Bearer " + b"t" * 40 + b"\r\n"


@contextlib.contextmanager
def listening(**options):
    """A server with these limits; gives its port."""
    with scratch() as folder:
        server = Server(RUN, folder, None, Options(port=0, min_clients=9, rate=0, **options))
        with server.listening() as url:
            yield int(url.rpartition(":")[2])


@pytest.fixture(scope="module")
def quick():
    """A server whose limits of time are short."""
    with listening(limits=QUICK) as port:
        yield port


@pytest.fixture(scope="module")
def patient():
    """A server whose limits are the usual ones."""
    with listening(public_status=True) as port:
        yield port


def connected(port):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def rest(connection):
    """Read until the server closes the connection."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            got += piece
    return got


def ask(port, request, *more):
    """Send a request, and read until the server closes the connection."""
    with connected(port) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in (request, *more):
                connection.sendall(piece)
        return rest(connection)


def alive(port):
    """Whether somebody else is answered."""
    got = ask(port, b"GET /v1/run HTTP/1.1\r\nconnection: close\r\n\r\n")
    return got.startswith(b"HTTP/1.1 200 ")


def endless(piece, port, start):
    """Send a request that never ends; how many bytes were taken until the server closed the connection."""
    sent = 0
    with connected(port) as connection:
        try:
            connection.sendall(start)
            for _ in range(1 << 16):
                sent += connection.send(piece)
        except ConnectionError:
            pass
        return sent


ENDLESS = {
    "URL": (b"GET /", b"a" * 1024),
    "header": (b"GET / HTTP/1.1\r\na: ", b"b" * 1024),
    "name of a header": (b"GET / HTTP/1.1\r\n", b"c" * 1024),
    "headers": (b"GET / HTTP/1.1\r\n", b"d: e\r\n" * 100),
    "method": (b"", b"GET" * 300),
    "chunk size": (b"POST /v1/enrol HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"0" * 1024),
    "chunk extension": (b"POST /v1/enrol HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;", b"f" * 1024),
    "trailer": (b"POST /v1/enrol HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"g: h\r\n" * 100),
    "blank lines": (b"", b"\r\n" * 500),
    "pipelined requests": (b"POST /v1/enrol HTTP/1.1\r\ncontent-length: 9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n" * 50),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_endless_requests_are_cut(patient, what):
    """The server closes the connection when it has read some KiB; the rest is in buffers of the operating system."""
    start, piece = ENDLESS[what]
    assert endless(piece, patient, start) < 16 << 20
    assert alive(patient)


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (b"GET /%s HTTP/1.1\r\n\r\n" % (b"a" * 40_000), 431, "at most 16384 bytes beside its body"),
        (b"GET / HTTP/1.1\r\nx: %s\r\n\r\n" % (b"a" * 40_000), 431, "at most 16384 bytes beside its body"),
        (b"GET / HTTP/1.1\r\n%s\r\n" % (b"x: y\r\n" * 65), 431, "at most 64 headers"),
        (b"nonsense\r\n\r\n", 400, "no HTTP request"),
        (b"GET http:// HTTP/1.1\r\n\r\n", 400, "no HTTP request"),
        (b"GET /\xc3\xa9\x00 HTTP/1.1\r\n\r\n", 400, "no HTTP request"),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400, "no HTTP request"),
        (b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", 400, "no HTTP request"),
    ],
)
def test_malformed_requests_are_refused(patient, request_, status, reason):
    """With a status and a reason, as everywhere."""
    got = ask(patient, request_)
    assert got.startswith(b"HTTP/1.1 %d " % status), got
    assert reason in json.loads(got.partition(b"\r\n\r\n")[2])["reason"]


def test_body_of_an_upgrade_is_not_a_request(patient):
    """A proxy that forwards both would take the answer to the second one for that to a request of somebody else."""
    second = b"GET /v1/run HTTP/1.1\r\nconnection: close\r\n\r\n"
    upgrade = b" /v1/run HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
    with connected(patient) as connection:
        connection.sendall(b"POST" + upgrade + b"content-length: %d\r\n\r\n" % len(second))
        with contextlib.suppress(ConnectionError):
            connection.sendall(second)
        got = rest(connection)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"upgrades no connection" in got
    assert got.count(b"HTTP/1.1 ") == 1
    got = ask(patient, b"GET" + upgrade + b"\r\n" + second)  # without a body; what follows is not read
    assert got.startswith(b"HTTP/1.1 200 ")
    assert got.count(b"HTTP/1.1 ") == 1


def test_unusual_valid_requests_are_answered(patient):
    """Eight KiB of headers, a body in chunks, a few requests at once, and bytes one by one."""
    padding = b"x: " + b"y" * 8000 + b"\r\n"
    assert ask(patient, b"GET /v1/run HTTP/1.1\r\nconnection: close\r\n" + padding + b"\r\n").startswith(
        b"HTTP/1.1 200 "
    )
    chunks = b"".join(b"40\r\n%s\r\n" % (b" " * 64) for _ in range(200)) + b"0\r\nauthorization: trailer\r\n\r\n"
    enroll = b"POST /v1/enrol HTTP/1.1\r\nconnection: close\r\n" + TOKEN
    got = ask(patient, enroll + b"transfer-encoding: chunked\r\n\r\n" + b"e\r\n" + b'{"protocol":2}\r\n' + chunks)
    assert got.startswith(b"HTTP/1.1 201 "), got
    one = b"GET /v1/run HTTP/1.1\r\n\r\n"
    got = ask(patient, one * 3 + b"GET /v1/run HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert got.count(b"HTTP/1.1 200 ") == 4
    request = b"GET /v1/run HTTP/1.1\r\nconnection: close\r\n\r\n"
    assert ask(patient, *(bytes([byte]) for byte in request)).startswith(b"HTTP/1.1 200 ")


HALVES = {
    "nothing": b"",
    "half a line": b"GET /v1/ru",
    "half of the headers": b"GET /v1/run HTTP/1.1\r\nx: ",
    "a blank line": b"\r\n",
    "half a body": b"POST /v1/enrol HTTP/1.1\r\n" + TOKEN + b"content-length: 14\r\n\r\n{",
    "a body that nobody reads": b"GET /v1/run HTTP/1.1\r\ncontent-length: 99999\r\n\r\nx",
    "a body behind a refusal": b"PUT /v1/tasks/0/report HTTP/1.1\r\ncontent-length: 99999\r\n\r\nx",
}


def test_incomplete_requests_are_cut(quick):
    """Many connections that send half a request each: others are answered meanwhile, and all of these end."""
    with contextlib.ExitStack() as stack:
        connections = [(half, stack.enter_context(connected(quick))) for half in HALVES for _ in range(13)]
        for half, connection in connections:
            connection.sendall(HALVES[half])
        assert alive(quick)
        answers = {half: set() for half in HALVES}
        for half, connection in connections:
            answers[half].add(rest(connection)[:12])
        for got in answers.values():
            assert got in ({b""}, {b"HTTP/1.1 408"}, {b"HTTP/1.1 200"}, {b"HTTP/1.1 401"})


def test_slow_uploads_are_cut(quick):
    """A byte now and then does not prolong anything: blank lines between requests, headers, a body that nobody reads."""
    with connected(quick) as connection:
        connection.sendall(b"GET /v1/run HTTP/1.1\r\n\r\n")
        assert connection.recv(10) == b"HTTP/1.1 2"
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"\r\n")
                connection.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1 << 16):
                        break
            else:
                raise AssertionError("the connection is still open")
    assert alive(quick)


def test_slow_readers_are_cut(quick):
    """A client that asks for much and reads nothing is cut."""
    with connected(quick) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(ConnectionError):
            for _ in range(100_000):
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            raise AssertionError("the connection is still open")
    assert alive(quick)


def test_connections_are_limited(monkeypatch):
    """More than so many of one address, or of all, are refused; when some end, others come in. This machine may have more."""
    limits = Limits(connections=5, per_address=3)
    monkeypatch.setattr(sockets, "network_of", lambda address: address)
    with listening(limits=limits) as port:
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(connected(port))
            assert ask(port, b"").startswith(b"HTTP/1.1 429 ")
            assert not alive(port)
        assert alive(port)
    monkeypatch.setattr(sockets, "network_of", lambda _: None)
    with listening(limits=limits) as port, contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connected(port))
        assert alive(port)
        stack.enter_context(connected(port))
        assert not alive(port)


def test_refused_peers_are_not_counted_down():
    """A connection that was not admitted does not free a place when it closes."""
    peers = Peers(Limits(connections=3, per_address=1))
    assert [peers.admit(each, network) for each, network in [("a", "x"), ("b", "x"), ("c", None)]] == [
        True,
        False,
        True,
    ]
    peers.forget("b", "x")
    assert not peers.admit("d", "x")
    peers.forget("a", "x")
    assert peers.admit("d", "x")
    assert peers._networks == {"x": 1}


def test_connections_that_are_reset_are_not_remembered(patient):
    """As a proxy closes idle ones, and an attacker thousands: their memory is free at once, not after 75 seconds."""
    before = remembered()
    for _ in range(30):
        with connected(patient) as connection:
            connection.sendall(b"GET /v1/run HTTP/1.1\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    deadline = time.monotonic() + 20
    while remembered() > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert remembered() <= before


def remembered():
    """Number of connections that are in memory."""
    gc.collect()
    return sum(isinstance(each, sockets.BoundedHttp) for each in gc.get_objects())


def test_connections_fit_the_file_descriptors(monkeypatch):
    """There are not more connections than the operating system has descriptors for."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512, 1024))
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    assert bounded(Limits()).limits.connections == 1024 - 256
    assert bounded(Limits(connections=10)).limits.connections == 10
    assert asked == [(1024, 1024)]


@pytest.mark.usefixtures("certificates")
def test_limits_behind_tls(certificates):  # noqa: F811
    """They are the same with TLS."""
    files = {"certificate": certificates / "server.pem", "key": certificates / "server.key"}
    with listening(limits=QUICK, **files) as port:
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        for request, answer in [
            (b"GET /v1/run HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 "),
            (b"GET / HTTP/1.1\r\nx: " + b"a" * 40_000, b"HTTP/1.1 431 "),
            (b"GET / HTTP/1.1\r\nx: ", b""),
        ]:
            with context.wrap_socket(connected(port), server_hostname="127.0.0.1") as connection:
                connection.sendall(request)
                connection.settimeout(10)
                got = b""
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    got = connection.recv(1 << 16)
                assert got.startswith(answer)


def test_stalled_handshakes_are_counted_and_cut(monkeypatch, certificates, caplog):  # noqa: F811
    """They count for their address from the first packet on, have no longer than headers, and do not hold up the end."""
    files = {"certificate": certificates / "server.pem", "key": certificates / "server.key"}
    context = ssl.create_default_context(cafile=certificates / "ca.pem")

    def answered(port):
        with contextlib.suppress(OSError), context.wrap_socket(connected(port), server_hostname="127.0.0.1") as secured:
            secured.sendall(b"GET /v1/run HTTP/1.1\r\n\r\n")
            return secured.recv(12) == b"HTTP/1.1 200"
        return False

    def stalled(port, stack, *starts):
        """Connections that say nothing, the first bytes of a hello, or what is no TLS."""
        connections = [stack.enter_context(connected(port)) for _ in starts]
        for connection, start in zip(connections, starts, strict=True):
            connection.sendall(start)
        return connections

    monkeypatch.setattr(sockets, "network_of", lambda address: address)
    with contextlib.ExitStack() as stack, listening(limits=Limits(connections=50, per_address=3), **files) as port:
        held = stalled(port, stack, b"", b"\x16\x03\x01\x02\x00\x01", b"")
        assert not answered(port)
        for connection in held:
            connection.close()
        assert any(answered(port) for _ in range(100))
        stalled(port, stack, b"", b"\x16\x03")
    assert "timeout graceful shutdown exceeded" not in caplog.text
    with listening(limits=QUICK, **files) as port, contextlib.ExitStack() as stack:
        assert all(not rest(connection) for connection in stalled(port, stack, b"", b"\x16\x03\x01\x02"))
        assert rest(stalled(port, stack, b"GET / HTTP/1.1\r\n\r\n")[0])[:1] in (b"", b"\x15")  # an alert at most
        assert answered(port)


@pytest.mark.parametrize("protected", [False, True], ids=["plain", "TLS"])
def test_slow_headers_do_not_delay_the_stop(certificates, caplog, protected):  # noqa: F811
    """Neither those of a first or of a later request, nor a client that does not end TLS, until uvicorn loses patience."""
    files = {"certificate": certificates / "server.pem", "key": certificates / "server.key"} if protected else {}
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    with contextlib.ExitStack() as held:
        dripping = []
        with listening(**files) as port:
            for first in (b"", b"GET /v1/run HTTP/1.1\r\n\r\n"):
                plain = held.enter_context(connected(port))
                connection = context.wrap_socket(plain, server_hostname="127.0.0.1") if protected else plain
                connection = held.enter_context(connection)
                connection.sendall(first)
                assert not first or connection.recv(1 << 16)
                connection.sendall(b"GET / HTTP/1.1\r\na: ")
                dripping.append(connection)
            ended = threading.Event()
            drips = threading.Thread(target=_drip, args=(dripping, ended))
            drips.start()
        ended.set()
        drips.join()
    assert "timeout graceful shutdown exceeded" not in caplog.text


def _drip(connections, ended):
    """Send a byte on each of these connections now and then, until all are closed or it is over."""
    while connections and not ended.wait(0.05):
        for connection in list(connections):
            try:
                connection.sendall(b"x")
            except OSError:
                connections.remove(connection)
