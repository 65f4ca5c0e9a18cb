"""A server that sends anything: clients read, wait for and show no more than they should, and end with a reason."""

import gzip
import json
import logging
import math
import random
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.laws.recipes import experiment

from turnout.core.display import printable
from turnout.core.signals import Flag
from turnout_serve.cli.logs import TextLines
from turnout_serve.client import join
from turnout_serve.client.calls import MOST_SECONDS, Answer, Call, JoinError, Sleep, Untrusted
from turnout_serve.client.computer import Computer
from turnout_serve.client.exchange import send
from turnout_serve.client.join import Connection, Joined, ServerSilent, announcement
from turnout_serve.client.newcomer import Manners, Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.state import ClientState, Pending
from turnout_serve.client.worker import Worker
from turnout_serve.wire.assignment import Assignment, plain_row, seconds
from turnout_serve.wire.format import WireError
from turnout_serve.wire.surveys import survey_of

from .test_crashes import free_port
from .test_network import cli

NO_TRAINER: Any = None  # of clients who get no task
ESCAPES = "\x1b]0;owned\x07\x1b[2Jgone\u202e\r"
RUN = {
    "protocol": 2, "run": "r1", "algorithm": "fedau", "engine": None, "settings": None, "describes": {},
    "num_classes": 10, "input_shape": [64], "enrolment": "open", "sees": [], "training": {},
}  # fmt: skip


def response(body, status="200 OK", headers=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n{headers}\r\n".encode() + body


@contextmanager
def speaking(*answers: Any):
    """A server that gives these answers in turn, the last one again and again; None closes the connection."""
    listener, heard, left = socket.create_server(("127.0.0.1", 0)), [], list(answers)

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    heard.append(connection.recv(1 << 16))
                    answer = left.pop(0) if len(left) > 1 else left[0]
                    pieces: Any = answer() if callable(answer) else [answer or b""]
                    for piece in pieces:
                        connection.sendall(piece)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield Connection(f"http://127.0.0.1:{listener.getsockname()[1]}"), heard
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def endless():
    yield b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    while True:
        yield b"10000\r\n" + bytes(1 << 16) + b"\r\n"


def test_endless_answer_is_read_up_to_its_limit():
    with speaking(endless) as (connection, _):
        with pytest.raises(JoinError, match=r"answer to /v1/run has more than 16,777,216 bytes"):
            announcement(connection)
        assert "/v1/status has more than 16,777,216 bytes" in cli("status", connection.url, code=2)
        with connection.client() as http, pytest.raises(JoinError, match="more than 100 bytes"):
            send(http, Call("GET", "/v1/models/x", most=100))


def test_endless_answer_does_not_delay_a_stop():
    """Whoever is told to stop reads no further."""
    stopped = Flag()
    stopped.set()
    with speaking(endless) as (connection, _), connection.client() as http:
        assert send(http, Call("GET", "/x", most=1 << 40), stopped.is_set).status == 0
        assert send(http, Call("GET", "/x", most=1 << 40, seconds=0.0)).status == 0


def dripping(start):
    """An answer of which one byte comes at a time after its start."""

    def drip():
        yield start
        while True:
            time.sleep(0.01)
            yield b"x"

    return drip


DRIPS = {
    "status": b"HTTP/1.1 200 ",
    "headers": b"HTTP/1.1 200 OK\r\nx: ",
    "body": b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n",
}


@pytest.mark.parametrize("part", DRIPS)
def test_slow_answer_is_cut_off(part):
    """Headers and body have limits of time in all, although each byte arrives before the timeout."""
    with speaking(dripping(DRIPS[part])) as (connection, _), replace(connection, timeout=0.3).client() as http:
        said = "the answer takes too long" if part == "body" else "the exchange takes too long, or is to stop"
        for call in (Call("GET", "/x", seconds=0.3), Call("PUT", "/x", body=bytes(1 << 20), seconds=0.3)):
            answer = send(http, call)
            assert (answer.status, answer.headers["error"]) == (0, said)


@pytest.mark.parametrize("part", [*DRIPS, "silence"])
def test_slow_answer_does_not_delay_a_stop(part, monkeypatch):
    """A signal ends the exchange, and the request to leave has a limit of time of its own."""
    monkeypatch.setattr(join, "_GOODBYE", 0.1)
    stopped = Flag()
    with speaking(dripping(DRIPS[part]) if part in DRIPS else silence) as (connection, heard):
        signal = threading.Timer(0.2, stopped.set)
        signal.start()
        assert Joined(Client(Newcomer(ClientState()), NO_TRAINER), connection, stopped).run() == "stopped"
        assert [request.split()[1] for request in heard][:2] in ([b"/v1/enrol", b"/v1/leave"], [b"/v1/enrol"])
        with pytest.raises(ServerSilent, match="stopped"):
            announcement(connection, 10.0, stopped)
        signal.join()


def silence():
    time.sleep(1.0)
    yield b""


def test_slow_heartbeat_answer_does_not_delay_the_report():
    """A heartbeat that is under way is given up."""
    drips = dripping(DRIPS["headers"])
    with speaking(drips) as (connection, heard), join._beating(connection, Call("POST", "/beat"), 0.001):
        while not heard:
            time.sleep(0.01)


def test_stopping_client_tries_to_report_for_a_minute(monkeypatch):
    stopped = Flag()
    joined = Joined(Client(Newcomer(ClientState()), NO_TRAINER), Connection("http://x"), stopped)
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert not joined._late()
    stopped.set()
    assert not joined._late()
    now[0] += 61.0
    assert joined._late()


def test_compressed_answer_is_not_decompressed():
    bomb = response(gzip.compress(bytes(1 << 26)), headers="content-encoding: gzip\r\n")
    with speaking(bomb) as (connection, heard):
        with connection.client() as http:
            answer = send(http, Call("GET", "/v1/run"))
        assert len(answer.body) < 1 << 17
        assert b"accept-encoding: identity" in heard[0].lower()
        with pytest.raises(JoinError, match="is no turnout server"):
            announcement(connection)


def test_first_request_is_retried(monkeypatch):
    """While there is patience: a server that starts, a proxy without one behind it, and too many requests."""
    monkeypatch.setattr(random, "uniform", lambda low, _: low)
    busy = response({"reason": "too many requests: try again"}, "429 Too Many Requests", "retry-after: 0\r\n")
    said = []
    with speaking(b"", busy, response(b"<html>", "502 Bad Gateway"), response(RUN)) as (connection, heard):
        assert announcement(connection, math.inf, notice=said.append)["run"] == "r1"
        assert len(heard) == 4
    (line,) = said
    assert "no answer from" in line
    assert "trying again" in line
    with speaking(busy) as (connection, _):
        with pytest.raises(JoinError, match=r"^too many requests: try again$"):
            announcement(connection)
        with pytest.raises(ServerSilent, match=r"has not answered for \d+ seconds: too many requests"):
            announcement(connection, 1e-6)
    stopped = Flag()
    stopped.set()
    nobody = Connection(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ServerSilent, match="stopped"):
        announcement(nobody, math.inf, stopped)
    with pytest.raises(JoinError, match="there is no server at"):
        announcement(nobody)
    said = cli("join", nobody.url, "--data", "digits", "--client", 0, "--patience", "0.01", code=1)
    assert "has not answered for 0 seconds" in said


@pytest.mark.parametrize(
    "change",
    [
        {"run": "../../etc"}, {"run": ESCAPES}, {"run": 7}, {"input_shape": [1 << 40]}, {"input_shape": ["x"]},
        {"num_classes": "10"}, {"describes": None}, {"settings": []}, {"engine": 1}, {"algorithm": {}},
    ],
)  # fmt: skip
def test_impossible_announcements_are_refused(change):
    with (
        speaking(response(RUN | change)) as (connection, _),
        pytest.raises(JoinError, match=f"form that is not allowed: {next(iter(change))}"),
    ):
        announcement(connection)


def test_a_server_of_an_earlier_protocol_is_refused():
    """Its messages of secure sums are others."""
    refusal = "the server speaks protocol 1, and this client 2: update the older one"
    with speaking(response(RUN | {"protocol": 1})) as (connection, _), pytest.raises(JoinError, match=refusal):
        announcement(connection)


SHARE = ("F64", (), "00" * 8)


@pytest.mark.parametrize(
    ("name", "task", "reason"),
    [
        ("mw_fed", {"told": {}}, "the server's task is not one of mw_fed: share is missing: needed share"),
        ("mw_fed", {"told": {"share": ("F64", (2,), "00" * 16)}}, r"share is F64 \[2\], needed F64 \[\]"),
        ("mw_fed", {"told": {"share": SHARE, "more": SHARE}}, "nobody asked for 'more': needed share"),
        (
            "fedau",
            {"told": {"share": SHARE}},
            "the server's task is not one of fedau: nobody asked for 'share': needed nothing",
        ),
    ],
)
def test_a_task_of_another_algorithm_is_refused(name, task, reason):
    """What a client would look for in vain, or take for what it is not."""
    worker = Worker(Computer(experiment(name, rounds=1)))
    fields = {"task": 0, "version": 0, "phase": "train", "repeat": 0, "model": "", "size": 0, "heartbeat": 1.0}
    with pytest.raises(WireError, match=reason):
        worker.do(0, Assignment(**fields | task), {}, worker.first_memory())
    unknown = Assignment(**fields | {"phase": "ponder", "told": {"share": SHARE}})
    assert worker.declines(unknown) == "unknown"  # the protocol has a client give it up


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[1]", b"null", b"1" * 5000, b"\xff", b""])
def test_answers_that_are_no_json_object_are_empty(body):
    assert Answer(200, body).table() == {}


def client() -> Any:
    """A client that has enrolled, and asks for work."""
    made = Client(Newcomer(ClientState(), jitter=random.Random(0)), NO_TRAINER)
    session: Any = made.session()
    next(session)
    action = session.send(Answer(200, json.dumps({"client": 3, "run": "r1"}).encode()))
    assert action.path == "/v1/checkin"
    return session


def table(**values):
    return Answer(200, json.dumps(values).encode())


@pytest.mark.parametrize("pause", [[1e308, 1e308], [0, 1e308], [5000, 1e9]])
def test_pauses_are_at_most_an_hour(pause):
    action = client().send(table(come_back=pause))
    assert isinstance(action, Sleep)
    assert 0 <= action.seconds <= MOST_SECONDS


@pytest.mark.parametrize("pause", [[math.nan, 1.0], [-1, 2], ["1", "2"], [True, 1], [math.inf, math.inf], [None, 1]])
def test_invalid_pause_ends_the_client(pause):
    with pytest.raises(WireError, match="where a number of seconds belongs"):
        client().send(table(come_back=pause))


def test_empty_answers_are_retried_with_backoff():
    session, pauses = client(), []
    for k in range(12):
        action = session.send([Answer(200), Answer(200, b"<html>"), table(come_back=7), Answer(404)][k % 4])
        assert isinstance(action, Sleep)
        pauses.append(action.seconds)
        assert session.send(None).path == "/v1/checkin"
    assert sum(pauses[6:]) > 3 * sum(pauses[:6])


@pytest.mark.parametrize(
    ("after", "most"), [("9" * 9, MOST_SECONDS), ("9" * 400, 10), ("²", 10), ("-1", 10), ("nan", 10)]
)
def test_retry_after_is_bounded(after, most):
    action = client().send(Answer(429, b"", {"retry-after": after}))
    assert isinstance(action, Sleep)
    assert action.seconds <= most


TASK = Assignment(1, 0, "train", 0, "0" * 64, 10, 1.0).json()


def test_report_waits_for_retry_after():
    state = ClientState()
    state.hold(Pending(Assignment.read(TASK), b"report", {}))
    session: Any = Client(Newcomer(state, jitter=random.Random(0)), NO_TRAINER).session()
    next(session)
    assert session.send(Answer(200, json.dumps({"client": 3, "run": "r1"}).encode())).method == "PUT"
    assert session.send(Answer(503, b"", {"retry-after": "40"})).seconds >= 40


@pytest.mark.parametrize(
    "change",
    [
        {"task": -1}, {"task": True}, {"task": 1 << 60}, {"version": "0"}, {"phase": ESCAPES}, {"repeat": 1.5},
        {"model": "../secret"}, {"size": -1}, {"heartbeat": 0}, {"heartbeat": math.nan}, {"heartbeat": 1e308},
        {"told": []}, {"told": {"x": 1}}, {"told": {"x": ["F32", [1 << 50], "00"]}}, {"told": {"x": ["F99", [1], "00"]}},
        {"told": {"x": ["F32", [-1], ""]}}, {"told": {"x": ["F32", [1], "0000zz00"]}},
        {"told": {"x": ["F32", [1], "00  0000"]}},
    ],
)  # fmt: skip
def test_malformed_tasks_are_refused(change):
    with pytest.raises(WireError, match=f"is no task: {next(iter(change))}.* is "):
        client().send(table(task=TASK | change))
    with pytest.raises(WireError, match="size is missing"):
        Assignment.read({name: value for name, value in TASK.items() if name != "size"})


def test_escapes_in_server_messages_are_not_printed():
    with pytest.raises(JoinError) as refused:
        client().send(Answer(403, json.dumps({"reason": ESCAPES}).encode()))
    assert str(refused.value) == "the server does not take this client: �]0;owned��[2Jgone��"
    session = client()
    with pytest.raises(StopIteration) as over:
        session.send(table(over=ESCAPES * 1000))
    assert "\x1b" not in over.value.value
    assert len(over.value.value) <= 200
    assert printable("a\nb\tc") == "a\nb�c"
    record = logging.LogRecord("turnout.client", logging.INFO, "", 0, "dropped", (), None)
    record.reason = ESCAPES
    assert "\x1b" not in TextLines().format(record)
    figures = {
        "run": ESCAPES, "algorithm": "a", "pace": "p", "state": "s", "version": 1, "rounds": 2, "enrolled": 1, "there": 1,
        "at_work": 0, "dropped": {ESCAPES: 1}, "curves": {ESCAPES: [[1, ESCAPES]]}, "healthy": True,
    }  # fmt: skip
    with speaking(response(figures)) as (connection, _):
        shown = cli("status", connection.url)
    assert "\x1b" not in shown
    assert "owned" in shown
    for heard in (
        {"version": ESCAPES, "deciles": {"influence": [1.0] * 11}},
        {"version": 1, "deciles": {ESCAPES: [1.0] * 11}},
    ):
        with speaking(response({**figures, "heard": heard})) as (connection, _):
            assert "what answers there is no turnout server" in cli("status", connection.url, code=2)
    with speaking(response({"run": 1})) as (connection, _):
        assert "what answers there is no turnout server" in cli("status", connection.url, code=2)


def test_malformed_enrollment_answers_are_refused():
    for told in ({}, {"client": "3", "run": "r1"}, {"client": -1, "run": "r1"}, {"client": 3, "run": "../x"}):
        session = Client(Newcomer(ClientState()), NO_TRAINER).session()
        next(session)
        with pytest.raises(JoinError, match="the server does not take this client: it answers 200"):
            session.send(table(**told))


def test_state_of_another_run_is_refused():
    made = Client(Newcomer(ClientState()), NO_TRAINER)
    made.state.enrolled(3, "r1")
    session = made.session()
    next(session)
    with pytest.raises(JoinError, match=r"the server is at another run \(r2, not r1\): give another --state"):
        session.send(table(client=3, run="r2"))
    assert made.state.run == "r1"


def sending():
    """A client with a report, its session, and the request that sends the report."""
    made = Client(Newcomer(ClientState(), jitter=random.Random(0)), NO_TRAINER)
    made.state.enrolled(3, "r1")
    made.state.hold(Pending(Assignment.read(TASK), b"body", {}))
    session: Any = made.session()
    next(session)
    return made, session, session.send(table(client=3, run="r1"))


def test_repeated_offset_is_retried_with_backoff():
    """A report is sent from where the server says; without progress there is a pause between two attempts."""
    _, session, put = sending()
    assert put.method == "PUT"
    for offset in (0, -5, "x", None, 0):
        action = session.send(Answer(409, json.dumps({"reason": "a piece is missing", "offset": offset}).encode()))
        assert isinstance(action, Sleep)
        put = session.send(None)
        assert put.body == b"body"
    assert session.send(Answer(409, b'{"reason": "a piece is missing", "offset": 2}')).body == b"dy"


@pytest.mark.parametrize("status", [200, 201, 204, 400, 401, 403, 404, 409, 410, 413, 422, 426, 502])
@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[1]", b'{"error": "proxy"}'])
def test_answers_of_a_proxy_to_a_report_are_no_answer(status, body):
    """It says neither that the report was taken nor that it is not wanted: the same bytes are sent again."""
    made, session, _ = sending()
    assert isinstance(session.send(Answer(status, body)), Sleep)
    assert session.send(None).method == "GET"
    put = session.send(table(state="open", offset=0))
    assert (put.method, put.body, made.done) == ("PUT", b"body", 0)
    assert made.state.pending is not None


def test_client_whose_report_is_malformed_stops_and_keeps_it():
    """For a corrected client."""
    made, session, _ = sending()
    with pytest.raises(JoinError, match="does not take this client: Upload-Length says 50 bytes"):
        session.send(Answer(400, b'{"reason": "Upload-Length says 50 bytes, and the report has 100"}'))
    assert made.state.pending is not None


def test_report_on_a_task_that_has_ended_is_dropped_also_where_a_proxy_refuses_it():
    """A proxy with a limit on the size of bodies never lets the server say so."""
    made, session, _ = sending()
    session.send(Answer(413, b"<html>413 Request Entity Too Large</html>"))
    session.send(None)
    assert session.send(table(state="dropped", reason="late")).path == "/v1/checkin"
    assert made.state.pending is None


def test_client_gives_up_a_server_that_only_a_proxy_answers_for(caplog):
    """A server that is down behind a proxy is silent, whatever the proxy answers."""
    made = Newcomer(ClientState(), manners=Manners(backoff=0.01), jitter=random.Random(0))
    bad_gateway, silent = response(b"<html>", "502 Bad Gateway"), "has not answered for 0 seconds"
    with speaking(bad_gateway) as (connection, _), pytest.raises(ServerSilent, match=silent):
        Joined(made, connection, patience=0.05).run()
    assert "the server does not answer: trying again" in caplog.text


LOGIN = {
    "page": response(b"<html>Welcome! Log in", headers="content-type: text/html; charset=utf-8\r\n"),
    "redirect": response(b"", "302 Found", "location: http://login.example/\r\n"),
}


@pytest.mark.parametrize("portal", LOGIN)
def test_login_page_of_a_network_is_no_answer(portal):
    """It answers for any server, once a client is in its network: the client waits, and gives up in the end."""
    made = Client(Newcomer(ClientState(), manners=Manners(backoff=0.01), jitter=random.Random(0)), NO_TRAINER)
    stopped, enrolled = Flag(), response({"client": 0, "run": "r1"})
    signal = threading.Timer(20.0, stopped.set)
    signal.start()
    with (
        speaking(enrolled, LOGIN[portal]) as (connection, heard),
        pytest.raises(ServerSilent, match="has not answered for"),
    ):
        Joined(made, connection, stopped, patience=0.3).run()
    signal.cancel()
    assert len(heard) > 2


def test_certificate_that_is_not_trusted_for_a_while_ends_no_client(monkeypatch, caplog):
    """It has expired for an hour, or somebody else answers on the way; a server that was never trusted is an error."""
    refused = Untrusted("no connection to https://x: the certificate of the server is not valid yet, or no longer")
    over = Answer(200, json.dumps({"over": "the run is over"}).encode())
    said = [Answer(201, b'{"client": 0, "run": "r1"}'), refused, refused, refused, over]

    def sends(*_, **__):
        answer = said.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(join, "send", sends)
    newcomer = Newcomer(ClientState(), manners=Manners(backoff=0.01), jitter=random.Random(0))
    assert Joined(Client(newcomer, NO_TRAINER), Connection("https://x")).run() == "the run is over"
    (record, *_) = caplog.records
    assert (record.getMessage(), record.reason) == ("the server does not answer: trying again", str(refused))
    said.append(refused)
    with pytest.raises(JoinError, match="not valid yet, or no longer"):
        Joined(Client(Newcomer(ClientState()), NO_TRAINER), Connection("https://x")).run()


def test_headers_of_a_server_are_not_shown_as_the_reason():
    """The header ``error`` of an answer without status is the client's own; that of a server is shown to nobody."""
    said, shown = list[str](), printable("busy\x9b2J")
    busy = response({"reason": "busy\x9b2J"}, "503 Busy", "error: \x9b2Jowned\r\n")
    with speaking(busy, response(RUN)) as (connection, _):
        assert announcement(connection, 9.0, notice=said.append)["run"] == "r1"
    assert said == [f"no answer from {connection.url} yet ({shown}): trying again"]


def test_invalid_seconds_are_refused():
    assert seconds(3, 10) == 3.0
    assert seconds(30, 10) == 10.0


def test_stopped_client_leaves():
    """Between two requests, whatever the server sends."""
    stopped = Flag()
    stopped.set()
    with speaking(endless) as (connection, _):
        made = Client(Newcomer(ClientState()), NO_TRAINER)
        assert Joined(made, connection, stopped).run() == "stopped"


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_survey_without_a_number_is_refused(number):
    survey = plain_row({"survey": torch.tensor([number], dtype=torch.float64)}, 0)
    task = Assignment(1 << 50, 0, "query", 0, "0" * 64, 0, 5.0, survey)
    with pytest.raises(WireError, match="does not say which evaluation or query"):
        survey_of(task)
