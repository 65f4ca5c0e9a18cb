"""``turnout conform`` with the JavaScript client, and with copies that break one rule each."""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from starlette.responses import JSONResponse
from tests.node import NODE, needs_node
from typer.testing import CliRunner

import turnout_serve
from turnout.cli.app import app
from turnout.evaluation.queries import Question
from turnout.protocol.survey import FIRST_TASK
from turnout_serve.cli.conform import trial_of
from turnout_serve.client.computer import Computer
from turnout_serve.client.worker import Worker
from turnout_serve.conform import faults, judge
from turnout_serve.conform.faults import Exchange
from turnout_serve.conform.scenarios import SCENARIOS
from turnout_serve.conform.trial import Trial, tried
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.assignment import plain_row as wire_told
from turnout_serve.wire.format import encode
from turnout_serve.wire.surveys import question_tensor

MODULE = Path(turnout_serve.__file__).parent / "client/javascript/turnout.js"
QUICK = Path(__file__).parents[1] / "javascript/quick.mjs"

ALL = bool(os.environ.get("TURNOUT_CONFORM"))
"""Whether to wait as often as a server asks, a second each time."""


def trial(module, scenarios):
    """Return the findings about a client by rule, or None."""
    command = f"{NODE} {QUICK} {module.as_uri()} {{url}} {{data}} {{state}}"
    return dict(tried(*trial_of(), command, scenarios=scenarios))


@needs_node
def test_javascript_client_conforms():
    """In each scenario except those that take a second."""
    slow = [each for each in SCENARIOS if each.fault.headers]
    found = trial(MODULE, [each for each in SCENARIOS if ALL or each not in slow])
    violated = {rule: wrong for rule, wrong in found.items() if wrong is not None}
    assert not violated, violated
    assert len(found) == len(SCENARIOS) + 11 - (0 if ALL else len(slow))


WAIT, DROPS = "/^[0-9]{1,9}$/.test(after) ?", "[404, 409, 410, 413, 422]"
OTHER = "[body.length - 1] ^= 1; headers['repr-digest'] = `sha-256=:${base64(sha256(body))}:`;"
BROKEN = {
    "429 to a question for work": ("pauses as the server asks", WAIT, "false ?", "comes 0."),
    "a model that is damaged": (
        "a model that is damaged",
        "while (hex(sha256(got)) !== task.model)",
        "while (got.length < task.size)",
        "the model is not asked for again",
    ),
    "a report whose answer is lost": (
        "a report whose answer is lost",
        "for (let offset = 0, attempt = 0; ;) {",
        f"for (let offset = 0, attempt = 0; ;) {{ body{OTHER}",
        "another report on the same task comes",
    ),
    "410 to a report": ("410 to a report", DROPS, "[404]", "the report comes again"),
    "409 with offset 0": (
        "minibatches and updates are as specified",
        "fold(key, client)",
        "fold(key, client + 1)",
        "is off by",
    ),
}
"""By what goes wrong: the rule that a client breaks, what is changed in it, and what is found."""


@needs_node
@pytest.mark.parametrize("name", BROKEN if ALL else ["a report whose answer is lost"])
def test_violations_are_detected(tmp_path, name):
    rule, text, other, why = BROKEN[name]
    source = MODULE.read_text("utf-8")
    assert text in source
    (tmp_path / "broken.mjs").write_text(source.replace(text, other))
    found = trial(tmp_path / "broken.mjs", [each for each in SCENARIOS if each.name == name])
    assert why in (found[rule] or ""), found


def exchange(path, begun, status=200, method="POST", token="t", answer=None):
    """A request that is answered at once."""
    body = json.dumps(answer or {}).encode()
    return Exchange(method, path, {"authorization": token}, b"", begun, begun, status, body)


WORK = {"task": {"task": 3, "heartbeat": 2.0}}


@pytest.mark.parametrize(
    ("rule", "log", "why"),
    [
        ("one token", [exchange("/v1/enrol", 0.0), exchange("/v1/checkin", 1.0, token="u")], "with 2 tokens"),
        (
            "pauses as the server asks",
            [exchange("/v1/checkin", 0.0, answer={"come_back": [3, 4]}), exchange("/v1/checkin", 2.0)],
            "comes 2.00 s after an answer that asks for 3 s",
        ),
        (
            "pauses between attempts",
            [exchange("/v1/checkin", k / 1000, status=503) for k in range(10)],
            "10 attempts of POST /v1/checkin come within 0.25 s",
        ),
        (
            "fingerprints of tasks",
            [exchange("/v1/tasks/3/report", 0.0, method="PUT")],
            "without Task-Fingerprint",
        ),
        (
            "signs of life at work",
            [
                exchange("/v1/checkin", 0.0, answer=WORK),
                exchange("/v1/models/x", 0.1),
                exchange("/v1/tasks/3/report", 7.0),
            ],
            "no heartbeat comes on task 3 for 7.0 s, needed every 2 s",
        ),
        (
            "evaluates or declines",
            [
                exchange("/v1/checkin", 0.0, answer={"task": {"task": 5, "heartbeat": 9.0, "phase": "evaluate"}}),
                exchange("/v1/checkin", 0.5),
            ],
            "task 5 of the phase evaluate is neither done nor given up",
        ),
        (
            "requests have their form",
            [exchange("/v1/enrol", 0.0, status=400, answer={"reason": "no JSON"})],
            "POST /v1/enrol is answered with 400: no JSON",
        ),
    ],
)
def test_each_rule_is_violated_only_by_its_own_log(rule, log, why):
    """Each rule is violated by a log that is made for it, and the others are not."""
    found = {name: wrong for name, wrong in judge.in_general(log).items() if wrong is not None}
    assert list(found) == [rule], found
    assert why in found[rule]
    quiet = [
        exchange("/v1/checkin", 0.0, answer=WORK),
        exchange("/v1/tasks/3/heartbeat", 3.0),
        exchange("/v1/checkin", 9.0),
    ]
    assert set(judge.in_general(quiet).values()) == {None}, judge.in_general(quiet)


REPORT = "/v1/tasks/3/report"


@pytest.mark.parametrize(
    ("name", "later", "why"),
    [
        ("503 to an enrollment", [], "the request does not come again"),
        ("503 to an enrollment", [exchange("/v1/enrol", 1.0, token="u")], "the request comes again with another token"),
        ("503 to an enrollment", [exchange("/v1/enrol", 1.0)], None),
        ("503 to a report", [exchange("/v1/checkin", 1.0)], "the report does not come again"),
        ("503 to a report", [exchange(REPORT, 1.0, method="PUT")], None),
        ("409 without offset", [exchange(REPORT, 1.0, method="PUT")], "the report comes again, and it will never be"),
        ("409 without offset", [], "the client does not ask for work again"),
        ("409 without offset", [exchange("/v1/checkin", 1.0)], None),
        ("a model that is cut", [], "the model is not asked for again, although its digest is wrong"),
    ],
)
def test_each_reaction_to_a_fault_is_judged(name, later, why):
    scenario = next(each for each in SCENARIOS if each.name == name)
    method, place = scenario.route
    found = scenario.check(exchange({"/report": REPORT}.get(place, place), 0.0, method=method), later)
    assert (found or "").startswith(why) if why else found is None


def test_pauses_count_from_before_the_answer_is_sent(monkeypatch):
    """However late the server's thread runs again after it has sent an answer, a client has not come too early."""
    now, log = [0.0], []
    monkeypatch.setattr(faults, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def app(scope, receive, send):
        await JSONResponse({"come_back": [3, 4]})(scope, receive, send)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_):
        now[0] += 1.5

    server = faults.Misbehaving(app, lambda _: None, log, lambda _: None)
    for _ in range(2):
        asyncio.run(server({"type": "http", "method": "POST", "path": "/v1/checkin", "headers": []}, receive, send))
    assert judge.in_general(log)["pauses as the server asks"] is None, log


def test_client_without_progress_is_ended():
    command = f"{sys.executable} -c 'import time; time.sleep(600)' {{url}}"
    found = Trial(*trial_of(), command, seconds=0.3).run()
    assert found["ends with the run"] == "it makes no progress for 0.3 s: it said nothing"


def test_wrong_answers_to_queries_are_detected():
    """A count that is off by one, and an answer about an unknown function; correct and declined answers pass."""
    worker = Worker(Computer(trial_of()[0]))
    told = {"question": question_tensor(Question("count").table())[None]}
    task = Assignment(FIRST_TASK, 0, "query", 0, "0" * 64, 0, 9.0, wire_told(told, 0))
    unknown = replace(task, told=wire_told({"question": question_tensor(Question("mean", "nobodys").table())[None]}, 0))

    def log(task, number):
        body = encode({"num_examples": torch.tensor([number])})
        put = Exchange("PUT", f"/v1/tasks/{task.task}/report", {}, body, 1.0, 1.0, 201, b"", 201)
        return [exchange("/v1/checkin", 0.0, answer={"task": json.loads(json.dumps(task.json()))}), put]

    assert judge.of_queries(worker, log(task, 18)) is None
    assert judge.of_queries(worker, log(task, 18)[:1]) is None
    assert "num_examples is off by 1" in (judge.of_queries(worker, log(task, 17)) or "")
    assert "a function that the client cannot have" in (judge.of_queries(worker, log(unknown, 18)) or "")
    # A query is answered without the model, and a client trains from no model that it has not got.
    assert judge.of_training(worker, log(task, 18), specified=True) is None
    training = replace(task, phase="train", task=3, told={})
    assert "whose model was never downloaded" in (judge.of_training(worker, log(training, 18), specified=True) or "")


def test_commands_that_cannot_be_tested_are_refused():
    def conform(*arguments):
        result = CliRunner().invoke(app, ["conform", *arguments])
        return " ".join(result.output.split()), result.exit_code

    said, code = conform("no-such-client {url}")
    assert code == 2
    assert "command: no-such-client cannot be started: " in said
    said, code = conform(f"{sys.executable} -c pass")
    assert code == 2
    assert "it has no {url}" in said
    said, code = conform("true {url}", "--seconds", "0")
    assert code == 2


def test_violated_rules_are_counted(monkeypatch):
    found = {"one report a task": None, "pauses": "0.1 seconds, needed 1", "leaves": "it does not leave"}
    monkeypatch.setattr("turnout_serve.conform.trial.tried", lambda *_, **__: found.items())
    result = CliRunner().invoke(app, ["conform", "true {url}"])
    assert result.exit_code == 1
    assert "2 rules of the protocol are violated" in result.output
    assert "VIOLATED  pauses: 0.1 seconds, needed 1" in result.output
