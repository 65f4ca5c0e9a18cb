"""The JavaScript client: the same minibatches, deltas and messages as ours, and a federation of both over sockets."""

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.node import NODE, needs_node
from tests.tiny import classification

import turnout_serve
from turnout import Experiment, Sgd, fedau
from turnout.base.client_step import client_step
from turnout.core.random import stream
from turnout.core.types import Task
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.models import Cnn, Logistic, Mlp
from turnout.pieces.local.minibatches import plan as planned
from turnout_serve.client.computer import Computer
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.run.training import training
from turnout_serve.wire.format import decode, manifest, read_manifest
from turnout_serve.wire.messages import report_body

MODULE = Path(turnout_serve.__file__).parent / "client/javascript/turnout.js"
CHECK = Path(__file__).parent / "javascript/check.mjs"
KILLS = int(os.environ.get("TURNOUT_KILLS", "4"))

pytestmark = needs_node

SGD = {"steps": 7, "epochs": None, "batch_size": 5, "sampling": "pass", "drop_last": True}
PLANS = [
    {"sgd": {**SGD, **sgd}, "seed": str(seed), "at": {"client": client, "version": 3, "numExamples": size, **at}}
    for seed, client, size, sgd, at in (
        (0, 0, 12, {}, {}),
        (1 << 70, 4, 12, {}, {"stepsDone": 9}),
        (5, 4, 3, {}, {"stepsDone": 1, "repeat": 2}),
        (5, 4, 12, {"drop_last": False}, {"stepsDone": 2}),
        (5, 1, 12, {"sampling": "fresh"}, {"stepsDone": 2}),
        (5, 1, 12, {"sampling": "fresh", "steps": None, "epochs": 2, "drop_last": False}, {"repeat": 1}),
        (5, 7, 12, {"sampling": "replacement"}, {"repeat": 1}),
        (5, 7, 12, {"sampling": "replacement"}, {"version": -1}),
        (5, 0, 4000, {"steps": 3, "batch_size": 500}, {}),
    )
]


def images(dtype):
    flat = classification(features=72, sizes=(30, 17), dtype=dtype).train
    return FederatedData("images", Shards(flat.x.view(-1, 2, 6, 6), flat.y, flat.offsets), 4)


RUNS = {
    "logistic": Experiment(classification(dtype=torch.float64), Logistic(), fedau(Sgd(lr=0.1)), seed=3),
    "mlp": Experiment(
        classification(dtype=torch.float64),
        Mlp(hidden=(7, 5)),
        fedau(Sgd(lr=0.1, momentum=0.9, weight_decay=0.01, steps=None, epochs=2, sampling="fresh")),
        seed=4,
    ),
    "cnn": Experiment(
        images(torch.float64),
        Cnn(hidden=(6,), channels=(3, 4)),
        fedau(Sgd(lr=0.05, batch_size=4, sampling="replacement")),
        seed=5,
    ),
}


def asked(plan):
    """The minibatches of our planner for one client."""
    sgd, at, one = plan["sgd"], plan["at"], lambda value: np.array([value], dtype=np.int64)
    size = at["numExamples"]
    in_pass = max(1, size // sgd["batch_size"]) if sgd["drop_last"] else -(-size // sgd["batch_size"])
    found = planned(
        offsets=one(0), sizes=one(size), clients=one(at["client"]), seed=int(plan["seed"]),
        versions=one(at["version"] + (at.get("repeat", 0) << 40)), done=one(at.get("stepsDone", 0)),
        num_steps=one(sgd["steps"] or sgd["epochs"] * in_pass), batch_size=sgd["batch_size"], sampling=sgd["sampling"],
        drop_last=sgd["drop_last"],
    )  # fmt: skip
    rows = zip(found.examples[0], found.counts[0], strict=True)
    return [examples[:number].tolist() for examples, number in rows]


def ours(experiment, client, version, memory):
    """One client's report, and what the JavaScript client is given to compute the same."""
    computer, algorithm = Computer(experiment), experiment.algorithm
    params = computer.objective.initial
    rows = {name: value[None].clone() for name, value in computer.memory.items()} | memory
    done = int(rows["steps_done"][0]) if "steps_done" in rows else 0
    task = Task(params, version, experiment.seed, repeat_index=np.array([1]))
    report, _ = client_step(algorithm, task, rows, computer.clients(client, client))
    tensors = read_manifest(report_body(report))
    about = training(algorithm, computer.objective, experiment.seed, tensors, opts=False)
    low, high = computer.shards.offsets[client : client + 2]
    return report, {
        "about": {**about, "input_shape": list(experiment.data.input_shape)},
        "params": params.tolist(),
        "inputs": computer.shards.x[low:high].tolist(),
        "targets": computer.shards.y[low:high].tolist(),
        "at": {"client": client, "version": version, "repeat": 1, "stepsDone": done},
    }


@pytest.fixture(scope="module")
def computed():
    """What the JavaScript client computes, and our reports."""
    memory = {"logistic": {"steps_done": torch.tensor([11])}}
    reports = {name: ours(run, 1, 6, memory.get(name, {})) for name, run in RUNS.items()}
    bodies = [bytes(range(256)) * 5, b"", b"a" * 55, b"a" * 56, b"a" * 64]
    question = {
        "module": MODULE.as_uri(),
        "plans": PLANS,
        "trainings": [asked for _, asked in reports.values()],
        "tensors": {"b": ["F32", [2, 1], [0.1, -3.0]], "num": ["I64", [1], ["7"]], "a": ["F64", [1], [0.1]]},
        "bodies": [body.hex() for body in bodies],
    }
    found = subprocess.run(
        [str(NODE), str(CHECK)], input=json.dumps(question).encode(), capture_output=True, timeout=60
    )
    assert found.returncode == 0, found.stderr.decode()
    return json.loads(found.stdout), {name: report for name, (report, _) in reports.items()}, bodies


def test_minibatches_equal_the_python_client(computed):
    found, _, _ = computed
    assert int(found["stream"]) == stream("minibatches", 5) % (1 << 64)
    assert found["plans"] == [asked(each) for each in PLANS]


@pytest.mark.parametrize("name", RUNS)
def test_updates_equal_the_python_client(computed, name):
    """To 1e-9 in float64, for each kind of model and of sampling."""
    found, reports, _ = computed
    theirs, report = found["trainings"][list(RUNS).index(name)], reports[name]
    assert theirs["numSteps"] == report.num_steps[0] > 0
    delta = torch.tensor(theirs["delta"], dtype=torch.float64)
    assert delta.abs().max() > 1e-3
    assert (delta - report.delta[0]).abs().max() < 1e-9
    assert abs(theirs["loss"] - report.seen["loss"].item()) < 1e-9


def test_messages_equal_the_python_client(computed):
    """The library reads the same tensors, and digests are those of Python."""
    found, _, bodies = computed
    tensors = {
        "b": torch.tensor([[0.1], [-3.0]]),
        "num": torch.tensor([7]),
        "a": torch.tensor([0.1], dtype=torch.float64),
    }
    read = decode(bytes.fromhex(found["encoded"]), manifest(tensors))
    assert all(torch.equal(read[name], value) for name, value in tensors.items())
    assert {name: values for name, _, _, values in found["decoded"]} == {
        "a": [0.1], "num": ["7"], "b": [float(np.float32(0.1)), -3.0],
    }  # fmt: skip
    assert found["digests"] == [hashlib.sha256(body).hexdigest() for body in bodies]


# Over sockets.

FEDERATION = Experiment(classification(), Logistic(), fedau(Sgd(lr=0.1)), rounds=6, evaluate_every=6)


def spawn(url, folder, row, experiment=FEDERATION):
    """Start a client on its part of the data."""
    train, file = experiment.data.train, folder / f"{row}.json"
    if not file.exists():
        low, high = train.offsets[row : row + 2]
        file.write_text(json.dumps({"inputs": train.x[low:high].tolist(), "targets": train.y[low:high].tolist()}))
    command = [str(NODE), str(MODULE), url, "--data", str(file), "--state", str(folder / f"{row}.state")]
    return subprocess.Popen(
        [*command, "--name", f"phone {row}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finished(process):
    """What a client that is done printed."""
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return said


def test_killed_clients_lose_nothing(folder):
    """Clients are killed at random moments and started again: each round has its report of each of them, once."""
    clients, chance, alive = 3, random.Random(4), {}
    data = classification(sizes=(40, 25, 16))
    experiment = Experiment(data, Logistic(), fedau(Sgd(lr=0.1)), rounds=max(6, KILLS), evaluate_every=6)
    leases = Leases(heartbeat=600, grace=600)
    made = Server(
        experiment, folder / "run", {"name": "tiny"}, Options(port=0, min_clients=clients, rate=0, leases=leases)
    )
    with made.listening() as url:
        for row in range(clients):  # one after the other, so that the server numbers them as the data do
            alive[row] = spawn(url, folder, row, experiment)
            while made.service.num_clients <= row:
                assert alive[row].poll() is None, finished(alive[row])
                time.sleep(0.005)
        kills = 0
        while kills < KILLS and made.driver.over is None:
            time.sleep(chance.uniform(0.0, 0.12))
            row = chance.randrange(clients)
            alive[row].send_signal(signal.SIGKILL)
            alive[row].communicate()
            kills += alive[row].returncode == -signal.SIGKILL
            alive[row] = spawn(url, folder, row, experiment)
        said = [finished(process) for process in alive.values()]
        assert made.driver.version == experiment.rounds
    assert kills > 0
    assert all("the run is over" in each for each in said)
    found = replay(ServedExperiment.of(experiment).setting, folder / "run")
    assert found.same is True
    assert len(found.visits.tasks) == clients * experiment.rounds
    states = [json.loads((folder / f"{row}.state").read_text()) for row in range(clients)]
    assert [(state["client"], state["stepsDone"], state["pending"]) for state in states] == [
        (row, 5 * experiment.rounds, None) for row in range(clients)
    ]


def test_client_that_enrolls_as_a_new_one_begins_without_memory(folder):
    """The server does not know the token, as after it was restored from a copy."""
    experiment = Experiment(classification(sizes=(20,)), Logistic(), fedau(Sgd(lr=0.1)), rounds=2)
    made = Server(experiment, folder / "run", {"name": "tiny"}, Options(port=0, rate=0))
    state = {"token": "t" * 40, "client": 0, "run": made.store.facts.run, "stepsDone": 7, "pending": None}
    (folder / "0.state").write_text(json.dumps(state))
    with made.listening() as url:
        finished(spawn(url, folder, 0, experiment))
    assert json.loads((folder / "0.state").read_text())["stepsDone"] == 5 * experiment.rounds


def test_unsupported_run_ends_with_the_reason(folder, tmp_path):
    made = Server(
        Experiment(classification(), Mlp(hidden=(4,), dropout=0.5), fedau(Sgd(lr=0.1))), folder, None, Options(port=0)
    )
    (tmp_path / "few.json").write_text('{"inputs": [[1, 2]], "targets": [0]}')

    def refused(data, *more):
        command = [str(NODE), str(MODULE), url, "--data", str(tmp_path / data), *more]
        found = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert found.returncode == 1
        return found.stderr

    with made.listening() as url:
        assert "this client cannot take part: the model holds" in refused("few.json")
        assert "no such file" in refused("none.json")
        assert "usage: node turnout.js URL" in subprocess.run(
            [str(NODE), str(MODULE)], capture_output=True, text=True, timeout=30
        ).stderr  # fmt: skip


def test_hostile_servers_end_clients_with_a_reason_at_most():
    """Nothing raw is shown, and heartbeats concern no report, whatever a server answers and a clock says."""
    command = [str(NODE), str(CHECK.with_name("hostile.mjs")), MODULE.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert (
        found["protocol"]
        == "JoinError: the server speaks protocol ?]0;owned??2J, and this client 2: update the older one"
    )
    for name, what in (
        ("description", "description of the run"),
        ("layers", "description of the run"),
        ("tensors", "model"),
    ):
        assert found[name].startswith(f"JoinError: the server's {what} cannot be used: ")
    assert found["model"] == "JoinError: the server's model has no params"
    assert found["reports"] == 3  # the second request asks for the state of the task
    assert found["page"] == found["proxy"] == found["long"] == found["silent"] == found["gone"] == "over?]0;owned??2J"
    assert found["pauses"] == 1  # before it asks for work again
    assert found["beats"] >= 1
    assert found["open"] == 1


def test_module_stays_short():
    assert len(MODULE.read_text("utf-8").splitlines()) <= 820
