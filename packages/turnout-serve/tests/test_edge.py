"""What comes from strangers is read within limits, and what breaks them is refused with the reason."""

import gzip
import json
import tracemalloc

import pytest
import torch

from turnout_serve.server.enrollment import hashed
from turnout_serve.server.http.limits import Limits, network_of
from turnout_serve.server.journal.events import Event
from turnout_serve.wire import edge
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.bodies import Checkin, Fail
from turnout_serve.wire.edge import Malformed
from turnout_serve.wire.format import (
    WireError,
    decode,
    digest,
    encode,
    manifest,
    model_tensors,
    repr_digest,
    split_model,
)

from .test_hostile import NEWCOMER, auth, deployed, task_of  # noqa: F401

DOCUMENTS = {
    b'{"a":1,"a":1}': "gives a key twice",
    b'{"a":NaN}': "holds NaN",
    b'{"a":-Infinity}': "holds -Infinity",
    b'{"a":1e999}': "a number that is too large",
    b'{"a":' + b"9" * 5000 + b"}": "a number of 5000 digits, needed at most 20",
    rb'{"a":"\ud800"}': "half of a surrogate pair",
    rb'{"\udfff":1}': "half of a surrogate pair",
    b'{"a":[[[[1]]]]}': "nested too deeply",
    b"[" * 100_000: "is no JSON",
    b"\xff\xfe{\x00}\x00": "is no JSON",
    b'{"a":"\xed\xa0\x80"}': "is no JSON",
    b"\xef\xbb\xbf{}": "is no JSON",
    b"{'a':1}": "is no JSON",
    b"[1]": "is no JSON object",
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda body: body[:20].decode("latin-1"))
def test_malformed_json_is_refused(document):
    """Refused is all JSON that parsers read differently."""
    with pytest.raises(Malformed, match=DOCUMENTS[document]):
        edge.read_object(document)


def test_valid_json_is_read():
    """An empty body is an empty object; texts and numbers are unchanged."""
    assert edge.read_object(b"") == {}
    value = {"a": [1.5, -(2**63), True, None, {"b": "naïve 🙂 名前"}]}
    assert edge.read_object(json.dumps(value).encode()) == value


TEXTS = [
    "\x1b[31mred",
    "a\x00",
    "line\nbreak",
    "\u202egnp.exe",
    "\u2066x",
    "\x9b2J",
    "\ufeff",
    "\ue000",
    "x" * 101,
    5,
    ["a"],
]


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_unprintable_texts_are_refused(text):
    """Refused are characters that move a cursor, are invisible, or change the reading direction."""
    with pytest.raises(Malformed, match=r"reason is .*: (needed printable|string should have|input should be)"):
        Fail.read({"reason": text})
    assert Fail.read({"reason": "Zoë 名前 🙂"}).reason == "Zoë 名前 🙂"
    assert Fail.read({}).reason is Fail.read({"reason": None}).reason is None


@pytest.mark.parametrize("value", [True, "1", 1.5, None, -2, 2**53])
def test_invalid_whole_numbers_are_refused(value):
    with pytest.raises(Malformed, match=f"after is {value!r}: input should be"):
        Checkin.read({"after": value})
    assert Checkin.read({"after": 3.0}).after == 3


@pytest.mark.parametrize("value", [True, "1", -0.1, 1e10, None])
def test_invalid_numbers_are_refused(value):
    with pytest.raises(Malformed, match=r"wait is .*: input should be"):
        Checkin.read({"wait": value})


ENROLLMENTS = {
    rb'{"protocol":2,"name":"\ud800"}': 400,
    rb'{"protocol":2,"name":"\u0000"}': 400,
    rb'{"protocol":2,"name":"\u001b]0;x\u0007"}': 400,
    rb'{"protocol":2,"code":"\ud800"}': 400,
    b'{"protocol":2,"protocol":2}': 400,
    b'{"protocol":true}': 400,
    b'{"protocol":2' + b"0" * 5000 + b"}": 400,
    b'{"protocol":1}': 426,
    b"{}": 426,
    rb'{"protocol":2,"name":"\\u0000 is not NUL"}': 201,
}


@pytest.mark.parametrize("body", ENROLLMENTS, ids=lambda body: body[:40].decode())
def test_invalid_enrollments_are_refused(deployed, body):  # noqa: F811
    """Anybody may ask; what is no text for a database, a terminal or a page never gets to the journal."""
    entries, headers = deployed.host.driver.applied, {"authorization": f"Bearer {hashed(body.decode())[:40]}"}
    answer = deployed.host.send("POST", "/v1/enrol", body, headers)
    assert answer.status == ENROLLMENTS[body], answer.body
    assert answer.status == 201 or answer.table()["reason"]
    assert deployed.host.driver.applied == entries + (answer.status == 201)
    assert deployed.host.service.writer.failure is None


def test_invalid_paths_and_headers_are_refused(deployed):  # noqa: F811
    """Numbers of thousands of digits, digits of other scripts, headers that are given twice."""
    for path, status in {
        f"/v1/tasks/{'9' * 5000}": 404,
        "/v1/tasks/٣": 404,
        "/v1/tasks/0x1": 404,
        "/v1/tasks/": 404,
    }.items():
        assert deployed.host.send("GET", path, b"", auth(deployed, 3)).status == status
    token = auth(deployed, 3)
    for name, value in {"upload-offset": "²", "upload-length": "9" * 16, "repr-digest": "sha-256=:AAAA:"}.items():
        assert deployed.host.send("PUT", "/v1/tasks/3/report", b"x", token | {name: value}).status == 400
    twice = token | {"Authorization": f"Bearer {NEWCOMER}"}
    answer = deployed.host.send("POST", "/v1/checkin", b"{}", twice)
    assert (answer.status, answer.table()["reason"]) == (400, "authorization is given 2 times, needed once")


def test_events_with_unstorable_values_are_refused():
    """The error is raised in the thread of the request, not in that of the journal."""
    for event, why in [
        ({"data": {"name": "\ud800"}}, "surrogates not allowed"),
        ({"data": {"name": "\0"}}, "contain NUL"),
        ({"data": {"name": "x" * 5000}}, "more than 4,096 bytes"),
        ({"task": 1 << 63}, "does not fit in 64 bits"),
    ]:
        with pytest.raises(ValueError, match=why):
            Event("enrol", **event)
    assert Event("enrol", digest=hashed("x"), data={"name": r"\u0000"}).data


def test_invalid_headers_of_reports_are_refused():
    """Their JSON is read as strictly, and no more of it than the expected tensors need."""
    import torch

    expected = manifest({"x": torch.zeros(2)})
    whole = encode({"x": torch.zeros(2)})

    def header(text):
        return len(text).to_bytes(8, "little") + text + bytes(8)

    for body, why in [
        (header(b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{}}'), "its header cannot be read"),
        (header(rb'{"x":{"dtype":"\ud800","shape":[2]}}'), "its header cannot be read"),
        (header(b'{"x":{"dtype":["F32"],"shape":[2]}}'), "its header cannot be read"),
        (header(b'{"x":{"dtype":"F32","shape":[true,2.0]}}'), "its header cannot be read"),
        (header(b"[" * 100_000), "100,000 bytes, needed at most 1,280"),
        (header(b'{"x":{"dtype":"F32","shape":[3]}}'), r"x is F32 \[3\], needed F32 \[2\]"),
    ]:
        with pytest.raises(WireError, match=why) as refused:
            decode(body, expected)
        str(refused.value).encode()
    assert decode(whole, expected)["x"].tolist() == [0, 0]


@pytest.mark.parametrize(
    "offsets",
    [
        [[0, 8], [0, 8]], [[0, 8], [4, 12]], [[0, 8], [9, 17]], [[8, 16], [0, 9]], [[8, 0], [8, 16]], [[0, 8], [8, 1 << 62]],
        [[0, 8], [(1 << 64) - 8, 1 << 64]], [[-8, 0], [0, 8]], [[0, 8], [8, 12]], [[0, 16], [8, 16]], [[0.0, 8], [8, 16]],
        [["0", 8], [8, 16]], [[0], [8]], [None, None],
    ],
)  # fmt: skip
@pytest.mark.parametrize("mapped", [False, True])
def test_overlapping_tensors_are_refused(tmp_path, offsets, mapped):
    """The types and shapes are as expected, but the offsets in the header are not."""
    expected = manifest({"x": torch.zeros(2), "y": torch.zeros(2)})
    header = {name: {"dtype": "F32", "shape": [2], "data_offsets": at} for name, at in zip("xy", offsets, strict=True)}
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + bytes(16)
    path = tmp_path / "body"
    path.write_bytes(body)
    with pytest.raises(WireError, match="no safetensors file"):
        decode(path if mapped else body, expected)


@pytest.mark.parametrize(("client", "coding"), [*enumerate(["gzip", "deflate", "br", "zstd", "identity, gzip"])])
def test_compressed_bodies_are_not_decompressed(deployed, client, coding):  # noqa: F811
    """A body is what was sent, whatever a header says of it, and a bomb is as large as it is packed."""
    body = gzip.compress(bytes(1 << 24))
    headers = {**auth(deployed, client), "content-encoding": coding}
    answer = deployed.host.send("POST", "/v1/checkin", body[:10_000], headers)
    assert (answer.status, answer.table()["reason"]) == (400, "the body is no JSON")
    name = {"repr-digest": repr_digest(digest(body))}
    path = f"/v1/tasks/{task_of(deployed, client)}/report"
    tracemalloc.start()
    assert deployed.host.send("PUT", path, body, headers | name).status == 413
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_peers_are_counted_by_network():
    """An IPv6 network of 64 bits is one peer, whichever of its addresses is used; this machine is nobody's peer."""
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:0:0:1") == "2001:db8::/64"
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert [network_of(each) for each in ("127.0.0.9", "::1", "::ffff:127.0.0.1")] == [None] * 3
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("test") == "test"


def test_limits_are_positive():
    from turnout.core.checks import ConfigurationError

    with pytest.raises(ConfigurationError, match=r"upload_rate: got 0, needed a finite number > 0"):
        Limits(upload_rate=0)


def test_split_model_inverts_model_tensors():
    """Parameters, and what else all clients are told, by its name."""
    params, shared = torch.arange(3.0), {"c": torch.ones(3), "scale": torch.zeros(1)}
    found, others = split_model(model_tensors(params, shared, torch.float32))
    assert torch.equal(found, params)
    assert others.keys() == shared.keys()
    assert all(torch.equal(others[name], shared[name]) for name in shared)


def test_fingerprint_of_server_and_client_are_equal():
    task = Assignment(3, 2, "train", 0, "0" * 64, 10, 60, {"rate": ("F64", (), "0" * 16)})
    assert Assignment.read(json.loads(json.dumps(task.json()))).fingerprint == task.fingerprint
