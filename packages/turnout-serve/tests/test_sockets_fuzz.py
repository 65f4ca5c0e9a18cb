"""Random bytes over real sockets: an answer below 500 or a closed connection, and a server that goes on."""

import contextlib
import json
import socket

from hypothesis import given, settings
from hypothesis import strategies as st

from .test_hostile import BODIES, EXAMPLES
from .test_sockets import connected, patient, rest  # noqa: F401

LINES = st.sampled_from(
    [
        b"POST /v1/enrol HTTP/1.1",
        b"POST /v1/checkin HTTP/1.1",
        b"PUT /v1/tasks/0/report HTTP/1.1",
        b"GET /v1/status HTTP/1.0",
        b"GET /metrics HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT a:1 HTTP/1.1",
        b"GET http://[::1 HTTP/1.1",
        b"HEAD / HTTP/1.1",
        b"GET /%ff%00%0d%0a HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET /v1/tasks/%d9%a3 HTTP/1.1",
        b"POST /v1/enrol?a=%zz#b HTTP/1.1",
    ]
)
FIELDS = st.tuples(
    st.sampled_from(
        [
            b"authorization",
            b"content-length",
            b"transfer-encoding",
            b"connection",
            b"upgrade",
            b"expect",
            b"range",
            b"host",
            b"repr-digest",
            b"upload-offset",
            b"upload-length",
            b"content-encoding",
            b"x",
            b"\xff",
            b"a b",
            b"",
        ]
    ),
    st.sampled_from(
        [
            b"Bearer " + b"z" * 40,
            b"0",
            b"14",
            b"-1",
            b"9" * 30,
            b"chunked",
            b"gzip, chunked",
            b"close",
            b"upgrade",
            b"websocket",
            b"h2c",
            b"100-continue",
            b"bytes=0-",
            b"\x1b[2J",
            b"\xc3\xa9",
            b"a\x00b",
            b"a\r\n b",
            b"",
        ]
    ),
).map(b": ".join)
REQUESTS = st.tuples(LINES, st.lists(FIELDS, max_size=6), BODIES, st.booleans()).map(
    lambda drawn: b"\r\n".join(
        [drawn[0], *drawn[1], *([b"content-length: %d" % len(drawn[2])] if drawn[3] else []), b"", drawn[2]]
    )
)


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(requests=st.lists(REQUESTS, min_size=1, max_size=3), size=st.integers(1, 500), end=st.integers(0, 2000))
def test_random_bytes_are_answered(
    patient,  # noqa: F811
    requests,
    size,
    end,
):
    """Requests of every kind, broken anywhere: a status below 500 or a closed connection, and the server goes on."""
    raw = b"".join(requests)[: end or None]
    with connected(patient) as connection:
        with contextlib.suppress(OSError):
            for start in range(0, len(raw), size if len(raw) < 50 * size else len(raw)):
                connection.sendall(raw[start : start + size] if len(raw) < 50 * size else raw)
            connection.shutdown(socket.SHUT_WR)
        rest(connection)
    with connected(patient) as connection:
        connection.sendall(b"GET /v1/status HTTP/1.1\r\nconnection: close\r\n\r\n")
        figures = json.loads(rest(connection).partition(b"\r\n\r\n")[2])
    assert figures["healthy"]
    assert not [code for code in figures["answers"] if code >= "500"]
