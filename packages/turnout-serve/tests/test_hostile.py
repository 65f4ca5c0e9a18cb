"""Peers who send anything: no crash, no leak, a reason in the answer, and the run goes on to the right model."""

import base64
import json
import os
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.laws.recipes import DATA

from turnout import Population, fedau
from turnout.experiment import Experiment
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout.simulation import Simulation
from turnout_serve.server.http.app import Http
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.wire.format import digest, encode

from .conftest import scratch
from .world import LOCAL, World

EXAMPLES = int(os.environ.get("TURNOUT_FUZZ", "150"))
RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=2, evaluate_every=2)
STRANGER = "x" * 43
NEWCOMER = "y" * 43  # may enroll


@pytest.fixture(scope="module")
def deployed():
    """A federation whose first client has a task and its report in hand, and the second a task."""
    with scratch() as folder:
        world = World(RUN, folder)
        for home in world.homes:
            home.step(world.host)
        for home in world.homes[:2]:
            home.train(world.host)
        yield world
        world.close()


def named(name):
    return {"repr-digest": f"sha-256=:{base64.b64encode(bytes.fromhex(name)).decode()}:"}


def put(world, client, task, body, name=None, **headers):
    token = world.homes[client].state.token
    headers = {k.replace("_", "-"): v for k, v in headers.items()}
    headers = {"authorization": f"Bearer {token}", **named(name or digest(body)), **headers}
    return world.host.send("PUT", f"/v1/tasks/{task}/report", body, headers)


def waiting(home):
    """The report that a client has in hand."""
    assert home.state.pending is not None
    return home.state.pending.body


def task_of(world, client):
    return world.host.driver.task_of(client).task


PATHS = st.one_of(
    st.sampled_from(
        (
            "/ /metrics /v1/status /v1/run /v1/enrol /v1/checkin /v1/leave /v1/tasks/0 /v1/tasks/1 /v1/tasks/0/report "
            "/v1/tasks/0/heartbeat /v1/tasks/0/fail /v1/tasks/99999999999999999999/report /v1/models/../../etc/passwd "
            f"/v1/models/{'0' * 64} /v1/models/..%2f..%2fcheckpoint.safetensors /v1/tasks/{'9' * 5000} /v1/tasks/-1 "
            f"/v1/tasks/{'9' * 5000}/fail /v1/tasks/1e5/heartbeat /v1/tasks/٣ /v1/models/{'m' * 5000}"
        ).split()
    ),
    st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=30).map(lambda text: "/" + text),
)
TEXTS = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["\ud800", "a\x00b", "\x1b[2J\x1b]0;x\x07", "\u202eevil", "\r\nset-cookie: x", "\\u0000", "left"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KNOWN = st.fixed_dictionaries(
    {"protocol": st.just(2) | VALUES},
    optional=dict.fromkeys(("name", "code", "wait", "after", "reason"), TEXTS | VALUES),
)


def spliced(drawn):
    """A document with something in its middle that JSON or this server does not know."""
    text, foreign, place = drawn
    place %= len(text)
    return (text[:place] + foreign + text[place:]).encode("utf-8", "surrogatepass")


DOCUMENTS = (VALUES | KNOWN).map(json.dumps)
FOREIGN = st.sampled_from(
    [
        '"protocol":2,',
        "[" * 3000,
        '{"a":' * 1000,
        "1e999",
        "-Infinity",
        "NaN",
        "9" * 5000,
        "\ud800",
        "\\ud800",
        "\x00",
        "\ufeff",
    ]
)
BODIES = st.one_of(
    st.binary(max_size=300),
    DOCUMENTS.map(str.encode),
    KNOWN.map(lambda value: json.dumps(value).encode()),
    DOCUMENTS.map(lambda text: text.encode("utf-16")),
    st.tuples(DOCUMENTS, FOREIGN, st.integers(0, 1000)).map(spliced),
)
HEADER = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=40)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "authorization": HEADER | st.just(f"Bearer {NEWCOMER}") | HEADER.map(lambda text: f"Bearer {text:*<40}"),
        "repr-digest": HEADER | st.just(named("0" * 64)["repr-digest"]),
        "upload-offset": HEADER | st.integers(0, 10**16).map(str),
        "upload-length": HEADER | st.integers(0, 10**16).map(str),
        "content-length": HEADER | st.integers(0, 10**16).map(str),
        "range": HEADER | st.just("bytes=5-2"),
        "if-none-match": HEADER,
    },
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]),
    path=PATHS,
    body=BODIES,
    headers=HEADERS,
    known=st.booleans(),
    cut=st.none() | st.integers(0, 300),
)
def test_fuzzed_requests_are_answered(deployed, method, path, body, headers, known, cut):
    """Requests with and without a token; a refusal has a reason, and no client gets the task of another one."""
    before = [task_of(deployed, client) for client in (0, 1)]
    if known:  # a client that has no task of the first two
        headers = headers | {"authorization": f"Bearer {deployed.homes[7].state.token}"}
    answer = deployed.host.send(method, path, body, headers, cut)
    assert 200 <= answer.status < 500, (answer.status, answer.body)
    if answer.status >= 400 and answer.body and method != "HEAD":
        assert json.loads(answer.body)["reason"]
    assert [task_of(deployed, client) for client in (0, 1)] == before
    assert deployed.host.service.writer.healthy


def corrupted(body, draw):
    """A report that is changed in one way or another."""
    kind = draw(st.sampled_from(["cut", "flip", "longer", "header"]))
    if kind == "cut":
        return body[: draw(st.integers(0, len(body) - 1))]
    if kind == "longer":
        return body + draw(st.binary(min_size=1, max_size=50))
    place = draw(st.integers(0, 200 if kind == "header" else len(body) - 1))
    return body[:place] + bytes([body[place] ^ draw(st.integers(1, 255))]) + body[place + 1 :]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_corrupted_reports_are_refused(deployed, data):
    """A report that is not what was asked for is refused with a reason, or is one; the server goes on."""
    from turnout_serve.wire.format import WireError

    body = corrupted(waiting(deployed.homes[0]), data.draw)
    expected = deployed.setting.reports["train"]
    try:
        report = expected.read(body, 0, 0)
    except WireError as error:
        reason = str(error)
    else:
        reason = "none"
        assert report.delta.shape == (1, len(deployed.setting.initial))
        assert report.finite().all()
    assert reason


REFUSED = {
    "NaN": (lambda t: t | {"delta": t["delta"] * torch.nan}, "NaN or infinity"),
    "infinity": (lambda t: t | {"seen.loss": t["seen.loss"] + torch.inf}, "NaN or infinity"),
    "another shape": (lambda t: t | {"delta": t["delta"][:, 1:]}, "needed F32"),
    "another type": (lambda t: t | {"delta": t["delta"].double()}, "needed F32"),
    "too little": (lambda t: {k: v for k, v in t.items() if k != "num_steps"}, "num_steps is missing"),
    "a negative number": (lambda t: t | {"num_examples": -t["num_examples"]}, "needed 0 to 2\\^40"),
    "too much": (lambda t: t | {"own": torch.zeros(1)}, "nobody asked for 'own'"),
}


@pytest.fixture
def with_report(folder):
    """A server and its clients, of which the first holds a report, and the task of this report."""
    world = World(RUN, folder)
    try:
        for home in world.homes:
            home.step(world.host)
        world.homes[0].train(world.host)
        yield world, task_of(world, 0)
    finally:
        world.close()


@pytest.mark.parametrize("what", REFUSED)
def test_unrequested_reports_are_refused(with_report, what):
    """The answer is 422 with the reason; the task has ended, so that the round does not wait for it."""
    from safetensors.torch import load

    change, why = REFUSED[what]
    world, task = with_report
    answer = put(world, 0, task, encode(change(load(waiting(world.homes[0])))))
    assert answer.status == 422
    assert re.search(why, answer.table()["reason"])
    assert world.host.service.state_of(0, task).body == {"state": "dropped", "reason": "died"}
    assert not list(world.host.store.files.incoming.iterdir())


def test_oversized_reports_are_refused_before_the_body_is_read(folder):
    """The answer is 413 by the headers, and the task has ended."""
    large = [(b"x" * 100_000, {}), (b"x", {"content_length": "999999999"}), (b"x", {"upload_length": "999999999"})]
    world = World(RUN, folder)
    try:
        for home in world.homes:
            home.step(world.host)
        for client, (body, headers) in enumerate(large):
            world.homes[client].train(world.host)
            task = task_of(world, client)
            assert put(world, client, task, body, **headers).status == 413
            assert world.host.service.state_of(client, task).body == {"state": "dropped", "reason": "died"}
            assert put(world, client, task, body, **headers).status == 410
        assert [number for number, _ in world.host.driver.roster.refused.values()] == [1, 1, 1]
        assert world.host.send("POST", "/v1/checkin", b"[" * 20_000, auth(world, 0)).status == 413
        assert not list(world.host.store.files.incoming.iterdir())
    finally:
        world.close()


@pytest.mark.parametrize(
    ("sent", "headers", "why"),
    [
        (
            b"x" * 100,
            {"upload_length": "50"},
            "Upload-Length says 50 bytes, and the report has 100: send the length of",
        ),
        (b"x" * 9, {"upload_length": "50", "upload_offset": "42"}, "says 50 bytes, and the report has 51"),
        (b"x" * 100, {"upload_length": "50", "content_length": "7"}, "says 50 bytes, and the report has 100 or more"),
        (b"", {}, "the report is empty: send its bytes, with their number in Upload-Length"),
        (b"", {"upload_length": "0"}, "the report is empty"),
    ],
)
def test_report_of_another_length_than_announced_is_malformed(with_report, sent, headers, why):
    """The answer is 400 with both lengths; the task goes on, and its report is taken."""
    world, task = with_report
    answer = put(world, 0, task, sent, **headers)
    assert (answer.status, why in answer.table()["reason"]) == (400, True), answer.table()
    assert put(world, 0, task, waiting(world.homes[0])).status == 201
    assert not list(world.host.store.files.incoming.iterdir())


def auth(world, client):
    return {"authorization": f"Bearer {world.homes[client].state.token}"}


def test_client_can_reach_only_its_own_tasks(deployed):
    """Requests on the task of another client are answered with 404 and do not change it."""
    task, body = task_of(deployed, 0), waiting(deployed.homes[0])
    for method, path in [("GET", ""), ("POST", "/heartbeat"), ("POST", "/fail")]:
        answer = deployed.host.send(method, f"/v1/tasks/{task}{path}", b"{}", auth(deployed, 7))
        assert (answer.status, answer.table()["reason"]) == (404, f"client 7 has no task {task}")
    assert put(deployed, 7, task, body).status == 404
    assert task_of(deployed, 0) == task


def test_invalid_tokens_are_refused(deployed):
    """Missing, short and unknown tokens are answered with 401, and no token is shown or stored."""
    for headers in ({}, {"authorization": "Bearer short"}, {"authorization": f"Bearer {STRANGER}"}):
        assert deployed.host.send("POST", "/v1/checkin", b"{}", headers).status == 401
    token = deployed.homes[0].state.token
    shown = b"".join(deployed.host.send("GET", path).body for path in ("/", "/v1/status", "/metrics", "/v1/run"))
    assert token.encode() not in shown
    files = (path for path in deployed.folder.rglob("*") if path.is_file())
    assert not any(token.encode() in path.read_bytes() for path in files)


def test_requests_beyond_the_rate_limit_are_refused(deployed):
    """A client beyond the limit has to wait; other clients do not."""
    limited = Http(deployed.host.service, {}, Options(rate=1.0))
    app, deployed.host.app = deployed.host.app, limited.app()
    try:
        answers = [deployed.host.send("POST", "/v1/tasks/0/heartbeat", b"", auth(deployed, 5)) for _ in range(6)]
        assert [answer.status for answer in answers].count(429) == 2
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert deployed.host.send("POST", "/v1/tasks/0/heartbeat", b"", auth(deployed, 6)).status == 404
    finally:
        deployed.host.app = app
        deployed.host.service.writer.notify = deployed.host.http._wake


def test_one_time_code_is_used_once(folder):
    """Where enrollment takes a code, each makes one client; the client that used it may ask again."""
    from turnout_serve.server.enrollment import Enrollment, hashed

    world = World(RUN, folder, min_clients=8)
    try:
        service = world.host.service
        world.host.store.add_codes([hashed("first")])
        service.enrollment = Enrollment(world.host.store, 100, True, lambda: None, most_numbers=100)
        vars(service.writer.handler)["_enrollment"] = service.enrollment

        def enroll(token, code):
            body = json.dumps({"protocol": 2, "code": code} if code else {"protocol": 2}).encode()
            return world.host.send("POST", "/v1/enrol", body, {"authorization": f"Bearer {token * 40}"}).status

        assert [enroll("a", None), enroll("a", "wrong"), enroll("a", "first"), enroll("a", "first")] == [
            403,
            403,
            201,
            200,
        ]
        assert enroll("b", "first") == 403
        world.restart()
        assert world.host.store.codes() == {hashed("first"): 8}
    finally:
        world.close()


def test_hostile_peers_do_not_change_the_model(folder):
    """Between what is sent to it, the run comes to the model of its simulation."""
    world, simulation = World(RUN, folder), Simulation(RUN)
    try:
        while not all(home.over for home in world.homes):
            for client, home in enumerate(world.homes):
                home.train(world.host)
                held = world.host.driver.task_of((client + 1) % 8)
                if held is not None and home.state.pending is not None:
                    put(world, client, held.task, waiting(home))
                world.host.send(
                    "PUT", f"/v1/tasks/{client}/report", b"garbage", {"authorization": f"Bearer {STRANGER}"}
                )
                home.turn(world.host)
        for _ in range(RUN.rounds):
            simulation.round()
        assert torch.equal(world.host.driver.params, simulation.state.params)
    finally:
        world.close()


def test_silent_client_loses_its_task(folder):
    """A client that goes silent loses its task, and the round goes on without it."""
    world = World(RUN, folder, leases=Leases(heartbeat=5.0, missed=2, grace=5.0))
    try:
        for home in world.homes:
            home.step(world.host)
        world.homes[0].train(world.host)
        task = task_of(world, 0)
        for _ in range(6):
            world.clock.now += 4.0
            for home in world.homes[1:]:
                home.turn(world.host)
            world.host.pump()
        assert world.host.service.state_of(0, task).body == {"state": "dropped", "reason": "left"}
        assert world.host.driver.version > 0
        late = put(world, 0, task, waiting(world.homes[0]))
        assert (late.status, late.table()["reason"]) == (410, "left")
    finally:
        world.close()
