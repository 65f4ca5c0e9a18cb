"""Record the requests of a client and the answers of a server: a session with each refusal."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from turnout.configuration import Configuration
from turnout_serve.client.calls import Answer, Call, bearer
from turnout_serve.client.computer import Computer
from turnout_serve.client.connection import Connection
from turnout_serve.client.exchange import send
from turnout_serve.client.session import report_call
from turnout_serve.client.state import Pending
from turnout_serve.client.worker import Worker
from turnout_serve.conform.judge import reference_report
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import PROTOCOL, decode, encode, read_manifest


class Recorder:
    """Send requests to a server, and record them with the answers.

    Args:
        url: URL of the server.

    Attributes:
        exchanges: requests and answers as plain values.
    """

    def __init__(self, url: str) -> None:
        self._connection, self.exchanges = Connection(url), list[dict[str, Any]]()

    def send(self, name: str, call: Call) -> Answer:
        """Send a request, and record it under a name."""
        content, headers = call.content
        with self._connection.client() as http:
            answer = send(http, call)
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

    def post(self, name: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
        """Post a JSON body, by default as the first client, and record it under a name."""
        return self.send(name, Call("POST", path, body, headers=_FIRST if headers is None else headers))


def _body(content: bytes) -> dict[str, Any]:
    """Return a body as plain values."""
    try:
        return {"json": json.loads(content)} if content else {}
    except ValueError:
        return {"base64": base64.b64encode(content).decode()}


_FIRST = bearer("a" * 43)
"""Headers of the first client."""


def exchanges(run: Configuration) -> list[dict[str, Any]]:
    """Return the exchanges of a client that makes each mistake once."""
    with TemporaryDirectory() as folder:
        server = Server(
            run, Path(folder) / "run", {}, Options(port=0, rate=0, max_clients=2, leases=Leases(heartbeat=60))
        )
        with server.listening() as url:
            recorded = _session(Recorder(url), Worker(Computer(run)))
        codes = Server(run, Path(folder) / "codes", {}, Options(port=0, rate=1.0, max_clients=2, enrollment="codes"))
        with codes.listening() as url:
            recorded += _closed(Recorder(url), codes.new_codes[0])
    return recorded


def _session(recorder: Recorder, worker: Worker) -> list[dict[str, Any]]:
    """Take part in a run; before and after each step, send requests that are refused."""
    _enrollment(recorder)
    answer = recorder.post("ask for work", "/v1/checkin", {"protocol": PROTOCOL, "wait": 10})
    task = Assignment.read(answer.table()["task"])
    model = _download(recorder, task)
    body, _ = reference_report(worker, task, decode(model, worker.model), worker.first_memory())
    _reports(recorder, task, body)
    _states(recorder, task)
    _further_tasks(recorder, body)
    recorder.post("leave", "/v1/leave", {})
    return recorder.exchanges


def _enrollment(recorder: Recorder) -> None:
    """Look at the run, and enroll, also with what is refused."""
    send, post = recorder.send, recorder.post
    send("describe the run", Call("GET", "/v1/run"))
    send("nothing is here", Call("GET", "/v1/nothing"))
    send("another method", Call("GET", "/v1/enrol", headers=_FIRST))
    post("enroll without a token", "/v1/enrol", {"protocol": PROTOCOL}, {})
    send("enroll with a broken body", Call("POST", "/v1/enrol", body=b"{", headers=_FIRST))
    post("enroll with another version", "/v1/enrol", {"protocol": PROTOCOL + 1})
    post("ask for work before enrolling", "/v1/checkin", {})
    post("enroll", "/v1/enrol", {"protocol": PROTOCOL, "name": "first"})
    post("enroll again", "/v1/enrol", {"protocol": PROTOCOL, "name": "first"})


def _download(recorder: Recorder, task: Assignment) -> bytes:
    """Download the model of a task, whole and in parts, and return it."""
    path = f"/v1/models/{task.model}"
    model = recorder.send("download the model", Call("GET", path, headers=_FIRST)).body
    for name, header, value in (
        ("go on with a download", "range", f"bytes={task.size // 2}-"),
        ("a range behind the end", "range", f"bytes={task.size}-"),
        ("a model that is known", "if-none-match", f'"{task.model}"'),
    ):
        recorder.send(name, Call("GET", path, headers={**_FIRST, header: value}))
    recorder.send("a model that is none", Call("GET", f"/v1/models/{'0' * 64}", headers=_FIRST))
    return model


def _states(recorder: Recorder, task: Assignment) -> None:
    """Ask for the state of a task that has ended, and of tasks of others; enroll more clients."""
    other = bearer("b" * 43)
    recorder.post("ask what became of a task", f"/v1/tasks/{task.task}/heartbeat", {})
    recorder.send("a task of nobody", Call("GET", "/v1/tasks/999", headers=_FIRST))
    recorder.post("enroll a second client", "/v1/enrol", {"protocol": PROTOCOL}, other)
    recorder.send("a task of another client", Call("GET", f"/v1/tasks/{task.task}", headers=other))
    recorder.post("a third client is too many", "/v1/enrol", {"protocol": PROTOCOL}, bearer("c" * 43))


def _further_tasks(recorder: Recorder, body: bytes) -> None:
    """Send reports that are not finite, or too large, on further tasks, and give one up."""
    answer = recorder.post("ask for work again", "/v1/checkin", {"wait": 10})
    task, tensors = Assignment.read(answer.table()["task"]), decode(body, read_manifest(body))
    nan = encode({**tensors, "delta": tensors["delta"] * torch.nan})
    recorder.send("a report that holds NaN", _report(task, nan))
    recorder.send("a report on a task that was dropped", _report(task, body))
    answer = recorder.post("ask for work a third time", "/v1/checkin", {"wait": 10})
    call = _report(Assignment.read(answer.table()["task"]), body)
    large = {**call.headers, "upload-length": str(1 << 30)}
    recorder.send("a report that is too large", Call("PUT", call.path, body=body, headers=large))
    answer = recorder.post("ask for work a fourth time", "/v1/checkin", {"wait": 0})
    if isinstance(table := answer.table().get("task"), dict):
        recorder.post("give a task up", f"/v1/tasks/{table['task']}/fail", {"reason": "died"})


def _report(task: Assignment, body: bytes, begin: int = 0, end: int | None = None) -> Call:
    """Return the request that sends a report, or a part of it."""
    call = report_call(Pending(task, body, {}), begin, end)
    return replace(call, headers={**_FIRST, **call.headers})


def _reports(recorder: Recorder, task: Assignment, body: bytes) -> None:
    """Send a report in two pieces, with requests that are refused in between."""
    send, half, path = recorder.send, len(body) // 2, f"/v1/tasks/{task.task}"
    call = _report(task, body)
    others = {k: v for k, v in call.headers.items() if k != "repr-digest"}
    send("a report without its digest", Call("PUT", call.path, body=body, headers=others))
    other = {**call.headers, "task-fingerprint": "0" * 32}
    send("a report on another task", Call("PUT", call.path, body=body, headers=other))
    send("a report that begins in the middle", _report(task, body, half))
    send("the first half of a report", _report(task, body, 0, half))
    send("ask how much of it is here", Call("GET", path, headers=_FIRST))
    send("the rest of the report", _report(task, body, half))
    send("the report once more", call)
    changed = body[:-1] + bytes([body[-1] ^ 1])
    send("another report on the same task", _report(task, changed))
    send("ask what became of it", Call("GET", path, headers=_FIRST))


def _closed(recorder: Recorder, code: str) -> list[dict[str, Any]]:
    """Enroll with wrong and right codes, and send too many requests."""
    for name, secret in (("a code that nobody has", "none"), ("a one-time code", code), ("a code that was used", code)):
        headers = bearer(("d" if name == "a one-time code" else "e") * 43)
        recorder.send(name, Call("POST", "/v1/enrol", {"protocol": PROTOCOL, "code": secret}, headers=headers))
    while recorder.send("too many requests", Call("GET", "/v1/run")).status != 429:
        recorder.exchanges.pop()
    return recorder.exchanges
