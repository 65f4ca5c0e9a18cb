"""Write test vectors of the protocol, which the author of a client checks it against without a server.

They are recorded exchanges, random numbers, minibatches, updates, and the messages of a secure sum. The README.md that is
written beside them says what is in each file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from turnout.configuration import Configuration
from turnout.core.random import below, fold, stream
from turnout.core.types import State, Task
from turnout.evaluation.queries import KINDS, Question
from turnout.protocol.secure import shamir
from turnout.protocol.secure.client import sealed
from turnout.protocol.secure.masks import agree, expand, public
from turnout.protocol.secure.messages import commitment
from turnout.protocol.survey import FIRST_TASK
from turnout.record.storage import replace_files
from turnout_serve.client.calls import Session, carry_out
from turnout_serve.client.computer import Computer
from turnout_serve.client.newcomer import Manners, Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.state import ClientState
from turnout_serve.client.worker import Worker
from turnout_serve.conform.exchanges import Recorder, exchanges
from turnout_serve.conform.judge import reference_report
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run.training import training
from turnout_serve.wire.assignment import Assignment, plain_row
from turnout_serve.wire.format import decode, model_tensors, read_manifest
from turnout_serve.wire.surveys import question_tensor

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
        folder: folder, which is made if it does not exist.
        models: runs whose updates are computed, by name. The first of them is also served, and the exchanges recorded.
        secure: a run with a secure sum of at least three clients.
        surveys: a run whose one client has test examples.

    Raises:
        CheckpointError: if they cannot be written; earlier files are unchanged then.
    """
    contents = {
        "random.json": _random(),
        "training.json": {name: _training(run) for name, run in models.items()},
        "exchanges.json": exchanges(next(iter(models.values()))),
        "secure.json": _secure(secure),
        "surveys.json": _surveys(surveys),
        "primitives.json": _primitives(),
    }
    texts = {name: json.dumps(value, indent=1) + "\n" for name, value in contents.items()} | {"README.md": README}
    replace_files(
        {folder / name: partial(Path.write_text, data=text, encoding="utf-8") for name, text in texts.items()}
    )
    return [folder / name for name in texts]


def _unsigned(value: int) -> str:
    return str(int(value) % (1 << 64))


def _random() -> dict[str, Any]:
    """Return inputs and outputs of `stream`, `fold` and `below`."""
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
    """Return the update of one client, and all inputs of its computation."""
    computer, version, repeat = Computer(run), 4, 1
    worker, params = Worker(computer, client), computer.objective.initial
    memory = worker.first_memory()
    if "steps_done" in memory:
        memory["steps_done"] += 3
    task = Assignment(0, version, "train", repeat, "0" * 64, 0, 10.0)
    body, _ = reference_report(worker, task, model_tensors(params, {}, params.dtype), memory, client)
    expected = read_manifest(body)
    report = decode(body, expected)
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


def _surveys(run: Configuration) -> list[dict[str, Any]]:
    """Return an evaluation and a query of each kind, with the answers of a client."""
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
        inputs = {} if question is None else plain_row({"question": question_tensor(question.table())[None]}, 0)
        phase = "evaluate" if question is None else "query"
        task = Assignment(FIRST_TASK + number, 0, phase, 0, "0" * 64, 0, 10.0, inputs)
        body, _ = reference_report(worker, task, model_tensors(params, {}, params.dtype), worker.first_memory())
        examples = test if question is None else computer.shards
        report = {name: value.tolist() for name, value in decode(body, read_manifest(body)).items()}
        values = {"inputs": examples.x.tolist(), "targets": examples.y.tolist(), "params": params.tolist()}
        answers.append({"task": task.json(), **values, "report": report})
    return answers


def _primitives() -> dict[str, Any]:
    """Return the primitives of secure sums for fixed bytes and the participants 2 and 5."""
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
    """Run the sessions of clients in turn until all have ended."""
    results: list[Any] = [None] * len(sessions)
    alive = set(range(len(sessions)))
    while alive:
        for k in sorted(alive):
            try:
                results[k] = carry_out(sessions[k].send(results[k]), partial(recorder.send, ""))
            except StopIteration:
                alive.discard(k)
