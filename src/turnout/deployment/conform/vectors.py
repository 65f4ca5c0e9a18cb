"""Test vectors: recorded exchanges, random numbers, minibatches, updates, and the messages of a secure sum.

The author of a client replays them without a server: see the README.md that is written beside them.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.random import below, fold, stream
from turnout.core.types import State, Task
from turnout.deployment.client.calls import Answer, Call, Session, carry_out
from turnout.deployment.client.newcomer import Manners, Newcomer
from turnout.deployment.client.session import Client, report_call
from turnout.deployment.client.state import ClientState, Pending
from turnout.deployment.client.worker import Computer, Worker
from turnout.deployment.server.leases import Leases
from turnout.deployment.server.options import Options
from turnout.deployment.server.process import Server
from turnout.deployment.server.training import training
from turnout.deployment.wire.format import (
    PROTOCOL,
    Assignment,
    decode,
    encode,
    model_tensors,
    read_manifest,
    told,
)
from turnout.deployment.wire.surveys import question_tensor
from turnout.evaluation.queries import KINDS, Question
from turnout.protocol.secure import shamir
from turnout.protocol.secure.client import sealed
from turnout.protocol.secure.masks import agree, expand, public
from turnout.protocol.secure.messages import commitment
from turnout.protocol.survey import FIRST_TASK

README = """# Test vectors of the protocol

Written by `turnout protocol vectors`. `docs/protocol.md` is the protocol.

- `random.json`: `stream`, `fold` and `below` for integers; 64-bit numbers are decimal strings, unsigned.
- `training.json`: for each model and kind of sampling, `run` (as `/v1/run` has it), `params`, `inputs`, `targets` and `at`
  (client, version, repeat, steps done before); then `minibatches`, and `delta`, `loss` and `num_steps`, computed in float64.
- `exchanges.json`: requests and answers in the order in which they were sent: a session of a client with each refusal. A body
  is `json`, or `base64`. Tokens, codes and the name of the run are those of one server.
- `surveys.json`: for an evaluation and each kind of query, `task` (as a checkin has it), `params` of the model, `inputs` and
  `targets` (test examples of an evaluation, training examples of a query), and `report`, the sums by name.
- `primitives.json`: what the page calls `agree`, `expand`, `share` and `commit`, of given bytes in hexadecimal digits, and
  the row that a participant seals for another one.
- `secure.json`: what clients of one secure sum were told and what they reported, phase by phase, and the sum.
"""


def write(
    folder: Path, models: Mapping[str, Configuration], secure: Configuration, surveys: Configuration
) -> list[Path]:
    """Write all vectors into a folder, and return its files.

    Args:
        folder: where to; it is made.
        models: runs whose updates are computed, by name. The first of them is also served.
        secure: a run with a secure sum of at least three clients.
        surveys: a run whose one client has test examples.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "random.json": _random(),
        "training.json": {name: _training(run) for name, run in models.items()},
        "exchanges.json": _exchanges(next(iter(models.values()))),
        "secure.json": _secure(secure),
        "surveys.json": _surveys(surveys),
        "primitives.json": _primitives(),
    }
    for name, value in contents.items():
        (folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(README, encoding="utf-8")
    return [*(folder / name for name in contents), folder / "README.md"]


def _unsigned(value: int) -> str:
    return str(int(value) % (1 << 64))


def _random() -> dict[str, Any]:
    """Return random numbers of some integers."""
    keys = [("minibatches", ()), ("minibatches", (0,)), ("minibatches", (1 << 70, 5))]
    samples = {
        "stream": [{"text": t, "integers": [str(i) for i in i_s], "key": _unsigned(stream(t, *i_s))} for t, i_s in keys]
    }
    key = stream("minibatches", 3)
    for parts in ((0,), (7, 2), (-1, 4), ((5 << 40) + 1, 9)):
        bits = fold(key, *(np.array([part], dtype=np.int64) for part in parts))
        entry = {"key": _unsigned(key), "integers": [str(part) for part in parts], "bits": _unsigned(bits[0])}
        samples.setdefault("fold", []).append(entry)
        samples.setdefault("below", []).append(
            {"bits": _unsigned(bits[0]), "limit": 1000, "value": int(below(bits, 1000)[0])}
        )
    return samples


def _training(run: Configuration, client: int = 0) -> dict[str, Any]:
    """Return one client's update, and all that it follows from."""
    computer, version, repeat = Computer(run), 4, 1
    worker, params = Worker(computer, client), computer.objective.initial
    memory = worker.first_memory()
    if "steps_done" in memory:
        memory["steps_done"] += 3
    task = Assignment(0, version, "train", repeat, "0" * 64, 0, 10.0)
    done = worker.do(client, task, model_tensors(params, {}, params.dtype), memory)
    assert done is not None
    expected = read_manifest(done[0])
    report = decode(done[0], expected)
    low, high = computer.shards.offsets[client : client + 2]
    return {
        "run": {
            "input_shape": list(run.data.input_shape),
            "num_classes": run.data.num_classes,
            "training": training(run.algorithm, computer.objective, run.seed, expected, opts=False),
        },
        "params": params.tolist(),
        "inputs": computer.shards.x[low:high].tolist(),
        "targets": computer.shards.y[low:high].tolist(),
        "at": {"client": client, "version": version, "repeat": repeat, "steps_done": int(memory.get("steps_done", 0))},
        "minibatches": _minibatches(run, computer, client, version + (repeat << 40), memory),
        "delta": report["delta"][0].tolist(),
        "loss": report["seen.loss"].item(),
        "num_steps": report["num_steps"].item(),
    }


def _minibatches(run: Configuration, computer: Computer, client: int, draw: int, memory: State) -> list[list[int]]:
    """Return the positions of the examples of each minibatch."""
    task = Task(computer.objective.initial, draw, run.seed)
    rows = {name: value[None] for name, value in memory.items()}
    plan = run.algorithm.local.plan(task, rows, computer.clients(client, client))  # type: ignore[attr-defined]
    begin = int(computer.shards.offsets[client])
    return [(rows[:number] - begin).tolist() for rows, number in zip(plan.examples[0], plan.counts[0], strict=True)]


class Recorder:
    """Sends requests to a server, and notes them with their answers."""

    def __init__(self, url: str) -> None:
        self._host, self.exchanges = urlsplit(url).netloc, list[dict[str, Any]]()

    def send(self, name: str, call: Call) -> Answer:
        """Send a request and note it under a name."""
        content, headers = call.content
        connection = http.client.HTTPConnection(self._host, timeout=60)
        connection.request(call.method, call.path, content or None, headers)
        response = connection.getresponse()
        answer = Answer(response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})
        connection.close()
        recorded = ("content-type", "retry-after", "content-range", "etag", "allow")
        shown = {k: v for k, v in answer.headers.items() if k in recorded}
        self.exchanges.append(
            {
                "name": name,
                "request": {"method": call.method, "path": call.path, "headers": headers, **_body(content)},
                "answer": {"status": answer.status, "headers": shown, **_body(answer.body)},
            }
        )
        return answer


def _body(content: bytes) -> dict[str, Any]:
    """Return a body as plain values."""
    try:
        return {"json": json.loads(content)} if content else {}
    except ValueError:
        return {"base64": base64.b64encode(content).decode()}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _exchanges(run: Configuration) -> list[dict[str, Any]]:
    """Return a session of a client with each refusal."""
    with TemporaryDirectory() as folder:
        server = Server(
            run, Path(folder) / "run", {}, Options(port=0, rate=0, max_clients=2, leases=Leases(heartbeat=60))
        )
        with server.listening() as url:
            exchanges = _session(Recorder(url), Worker(Computer(run)))
        codes = Server(run, Path(folder) / "codes", {}, Options(port=0, rate=1.0, max_clients=2, enrolment="codes"))
        with codes.listening() as url:
            exchanges += _closed(Recorder(url), codes.new_codes[0])
    return exchanges


def _session(recorder: Recorder, worker: Worker) -> list[dict[str, Any]]:
    """Take part, with all that can go wrong."""
    token, other, send = _bearer("a" * 43), _bearer("b" * 43), recorder.send

    def post(name: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str] = token) -> Answer:
        return send(name, Call("POST", path, body, headers=headers))

    send("describe the run", Call("GET", "/v1/run"))
    send("nothing is here", Call("GET", "/v1/nothing"))
    send("another method", Call("GET", "/v1/enrol", headers=token))
    post("enrol without a token", "/v1/enrol", {"protocol": PROTOCOL}, {})
    send("enrol with a broken body", Call("POST", "/v1/enrol", body=b"{", headers=token))
    post("enrol with another version", "/v1/enrol", {"protocol": PROTOCOL + 1})
    post("ask for work before enrolling", "/v1/checkin", {})
    post("enrol", "/v1/enrol", {"protocol": PROTOCOL, "name": "first"})
    post("enrol again", "/v1/enrol", {"protocol": PROTOCOL, "name": "first"})
    answer = post("ask for work", "/v1/checkin", {"protocol": PROTOCOL, "wait": 10})
    task = Assignment.read(answer.table()["task"])
    model = send("download the model", Call("GET", f"/v1/models/{task.model}", headers=token)).body
    for name, header, value in (
        ("go on with a download", "range", f"bytes={task.size // 2}-"),
        ("a range behind the end", "range", f"bytes={task.size}-"),
        ("a model that is known", "if-none-match", f'"{task.model}"'),
    ):
        send(name, Call("GET", f"/v1/models/{task.model}", headers={**token, header: value}))
    send("a model that is none", Call("GET", f"/v1/models/{'0' * 64}", headers=token))
    memory = worker.first_memory()
    done = worker.do(0, task, decode(model, worker.model), memory)
    assert done is not None
    _reports(recorder, token, task, done[0])
    post("ask what became of a task", f"/v1/tasks/{task.task}/heartbeat", {})
    send("a task of nobody", Call("GET", "/v1/tasks/999", headers=token))
    post("enrol a second client", "/v1/enrol", {"protocol": PROTOCOL}, other)
    send("a task of another client", Call("GET", f"/v1/tasks/{task.task}", headers=other))
    post("a third client is too many", "/v1/enrol", {"protocol": PROTOCOL}, _bearer("c" * 43))
    answer = post("ask for work again", "/v1/checkin", {"wait": 10})
    task = Assignment.read(answer.table()["task"])
    tensors = decode(done[0], read_manifest(done[0]))
    nan = encode({**tensors, "delta": tensors["delta"] * torch.nan})
    send("a report that holds NaN", _report(token, task, nan))
    send("a report on a task that was dropped", _report(token, task, done[0]))
    answer = post("ask for work a third time", "/v1/checkin", {"wait": 0})
    if isinstance(table := answer.table().get("task"), dict):
        post("give a task up", f"/v1/tasks/{table['task']}/fail", {"reason": "died"})
    post("leave", "/v1/leave", {})
    return recorder.exchanges


def _report(token: Mapping[str, str], task: Assignment, body: bytes, begin: int = 0, end: int | None = None) -> Call:
    """Return the request that sends a report, or a part of it."""
    call = report_call(Pending(task, body, {}), begin, end)
    return replace(call, headers={**token, **call.headers})


def _reports(recorder: Recorder, token: Mapping[str, str], task: Assignment, body: bytes) -> None:
    """Send a report in pieces, and what is refused of it."""
    send, half, path = recorder.send, len(body) // 2, f"/v1/tasks/{task.task}"
    call = _report(token, task, body)
    others = {k: v for k, v in call.headers.items() if k != "repr-digest"}
    send("a report without its digest", Call("PUT", call.path, body=body, headers=others))
    for name, header, value in (
        ("a report on another task", "task-fingerprint", "0" * 32),
        ("a report that is too large", "upload-length", str(1 << 30)),
    ):
        send(name, Call("PUT", call.path, body=body, headers={**call.headers, header: value}))
    send("a report that begins in the middle", _report(token, task, body, half))
    send("the first half of a report", _report(token, task, body, 0, half))
    send("ask how much of it is here", Call("GET", path, headers=token))
    send("the rest of the report", _report(token, task, body, half))
    send("the report once more", call)
    changed = body[:-1] + bytes([body[-1] ^ 1])
    send("another report on the same task", _report(token, task, changed))
    send("ask what became of it", Call("GET", path, headers=token))


def _closed(recorder: Recorder, code: str) -> list[dict[str, Any]]:
    """Enrol with codes, and too often."""
    for name, secret in (("a code that nobody has", "none"), ("a one-time code", code), ("a code that was used", code)):
        headers = _bearer(("d" if name == "a one-time code" else "e") * 43)
        recorder.send(name, Call("POST", "/v1/enrol", {"protocol": PROTOCOL, "code": secret}, headers=headers))
    while recorder.send("too many requests", Call("GET", "/v1/run")).status != 429:
        recorder.exchanges.pop()
    return recorder.exchanges


def _surveys(run: Configuration) -> list[dict[str, Any]]:
    """Return an evaluation and queries, and what a client answers."""
    computer, answers = Computer(run), list[dict[str, Any]]()
    worker, params, test = Worker(computer, 0), computer.objective.initial, computer.test
    assert test is not None
    of_values = {
        "variance": {"center": 0.5},
        "histogram": {"edges": (-1.0, 0.0, 1.0)},
        "quantiles": {"edges": (-1.0, 1.0)},
    }
    questions = [None, *(Question(kind, **of_values.get(kind, {})) for kind in KINDS), Question("mean", "targets")]
    for number, question in enumerate([*questions, Question("mean", column=2)]):
        inputs = {} if question is None else told({"question": question_tensor(question.table())[None]}, 0)
        phase = "evaluate" if question is None else "query"
        task = Assignment(FIRST_TASK + number, 0, phase, 0, "0" * 64, 0, 10.0, inputs)
        done = worker.do(0, task, model_tensors(params, {}, params.dtype), worker.first_memory())
        assert done is not None
        examples = test if question is None else computer.shards
        report = {name: value.tolist() for name, value in decode(done[0], read_manifest(done[0])).items()}
        values = {"inputs": examples.x.tolist(), "targets": examples.y.tolist(), "params": params.tolist()}
        answers.append({"task": task.json(), **values, "report": report})
    return answers


def _primitives() -> dict[str, Any]:
    """Return the primitives of secure sums of fixed bytes, of participants 2 and 5."""
    keys = {u: hashlib.sha256(b"private key %d" % u).digest() for u in (2, 5)}
    seed, nonce = hashlib.sha256(b"seed").digest(), bytes(range(12))
    coefficients = [int.from_bytes(seed, "big"), 3**160, 5**100]
    shares = {x: shamir.value(coefficients, x).to_bytes(shamir.SHARE_BYTES, "big") for x in (2, 5, 7)}
    purposes = (b"share 2 5", b"mask 2 5")
    return {
        "keys": {str(u): {"private": key.hex(), "public": public(key).hex()} for u, key in keys.items()},
        "agree": {purpose.decode(): agree(keys[2], public(keys[5]), purpose).hex() for purpose in purposes},
        "expand": {str(bits): [str(word) for word in expand(seed, 5, bits)] for bits in (8, 20, 32, 54, 64)},
        "seed": seed.hex(),
        "share": {"coefficients": [str(a) for a in coefficients], "shares": {str(x): s.hex() for x, s in shares.items()}},
        "commit": {str(x): commitment(s).hex() for x, s in shares.items()},
        "sealed": {
            "nonce": nonce.hex(), "B": shares[5].hex(), "M": shares[7].hex(),
            "row": sealed(keys[2], public(keys[5]), 2, 5, shares[5], shares[7], nonce).hex(),
        },
    }  # fmt: skip


def _secure(run: Configuration) -> dict[str, Any]:
    """Return the messages of one secure sum."""
    computer, messages = Computer(run), list[dict[str, Any]]()
    with TemporaryDirectory() as folder:
        n = run.data.num_clients
        server = Server(
            run, Path(folder) / "run", {}, Options(port=0, rate=0, min_clients=n, leases=Leases(heartbeat=60))
        )
        with server.listening() as url:
            recorder = Recorder(url)
            clients = [
                Client(Newcomer(ClientState(), manners=Manners(wait=0.0)), Worker(computer, k)) for k in range(n)
            ]
            _converse([client.session() for client in clients], recorder)
        tasks: dict[str, dict[str, Any]] = {}
        for exchange in recorder.exchanges:
            request, answer = exchange["request"], exchange["answer"]
            if "task" in answer.get("json", {}):
                tasks[f"/v1/tasks/{answer['json']['task']['task']}/report"] = answer["json"]["task"]
            elif request["method"] == "PUT" and answer["status"] == 201:
                messages.append({"task": tasks[request["path"]], "report": request["base64"]})
        delta = (server.driver.params - server.setting.initial).tolist()
    return {"messages": messages, "delta": delta}


def _converse(sessions: Sequence[Session], recorder: Recorder) -> None:
    """Let clients take turns until all are done."""
    results: list[Any] = [None] * len(sessions)
    alive = set(range(len(sessions)))
    while alive:
        for k in sorted(alive):
            try:
                results[k] = carry_out(sessions[k].send(results[k]), partial(recorder.send, ""))
            except StopIteration:
                alive.discard(k)
