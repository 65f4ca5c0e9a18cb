"""A server that waits for the first client to tell the shape of its data: what it takes, what it refuses, what stays."""

import json
import threading

import httpx2
import pytest
from tests.children import command_line
from tests.tiny import classification

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout_serve.server.first_client import first_shape
from turnout_serve.server.journal.entries import Entry
from turnout_serve.server.options import Options
from turnout_serve.server.store.store import Store
from turnout_serve.wire.administrator import server_token
from turnout_serve.wire.data_shape import MOST_NUMBERS, DataShape
from turnout_serve.wire.edge import Malformed

from .test_crashes import free_port
from .test_network import cli

SHAPE = DataShape((5,), "float32", (), classes=3)
ANNOUNCEMENT = {"algorithm": "fedau", "pace": "Rounds", "input_shape": None, "data": {}}
OWN = """
import numpy as np

def examples():
    return np.random.default_rng(0).normal(size=(20, 5)), np.arange(20) % 3

def square():
    return np.zeros((20, 8, 8)), np.arange(20) % 3

def more():
    return np.zeros((20, 5)), np.arange(20) % 4
"""


def told(shape=SHAPE, **changes):
    return {**shape.settings(), **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"inputs": [MOST_NUMBERS, 2]}, "without a declaration of the server's operator .* has 1 to 262,144 numbers"),
        ({"inputs": [1 << 40]}, "one has 1 to 262,144 numbers"),
        ({"inputs": []}, "one has 1 to"),
        ({"inputs": [5] * 7}, "inputs is .*: tuple should have at most 6 items"),
        ({"inputs": [0]}, "inputs.0 is 0: input should be greater"),
        ({"inputs": [True]}, "inputs.0 is True: input should be a valid integer"),
        ({"inputs": "5"}, "inputs is '5': input should be a valid tuple"),
        ({"input_type": "object"}, "input_type is 'object': input should be 'float32'"),
        ({"input_type": 3}, "input_type is 3: input should be"),
        ({"classes": MOST_NUMBERS + 1}, "262,144 numbers and as many labels"),
        ({"classes": None}, "needed one of classes and outputs"),
        ({"outputs": 2}, "needed one of classes and outputs"),
        ({"target_shape": [1024], "classes": 50_000}, "a model gives at most 4,194,304"),
    ],
)
def test_invalid_shapes_are_refused(changes, said):
    with pytest.raises(Malformed, match=said):
        DataShape.read(told(**changes))


def test_shape_must_match_the_declaration_of_the_server():
    assert SHAPE.within({}) == SHAPE
    assert SHAPE.within({"classes": 10}).classes == 10
    assert SHAPE.within({"input_type": "float64"}).input_type == "float64"
    for declared in ({"classes": 2}, {"outputs": 1}, {"target_shape": [4]}, {"input_type": "int64"}):
        with pytest.raises(
            ConfigurationError, match=r"have inputs \[5\] of float32 and 3 classes, and the server declares"
        ):
            SHAPE.within(declared)
    tokens = DataShape((80,), "int64", (80,), classes=60)
    with pytest.raises(ConfigurationError, match="the server has to declare the size of the vocabulary"):
        tokens.within({})
    assert tokens.within({"classes": 90}).classes == 90


def test_later_clients_may_only_lack_classes():
    SHAPE.check(DataShape((5,), "float64", (), classes=2))
    others = (
        DataShape((6,), "float32", (), classes=3),
        DataShape((5,), "int64", (), classes=3),
        DataShape((5,), "float32", (2,), classes=3),
        DataShape((5,), "float32", (), outputs=1),
    )
    for other in (*others, DataShape((5,), "float32", (), classes=4)):
        with pytest.raises(ConfigurationError) as error:
            SHAPE.check(other)
        assert str(other) in str(error.value)
        assert str(SHAPE) in str(error.value)


def test_shape_describes_the_data():
    data = classification()
    assert DataShape.of(data) == DataShape(data.input_shape, "float32", (), classes=data.num_classes)
    assert DataShape.of(to.data.declared(4, outputs=3)) == DataShape((4,), "float32", (), outputs=3)
    assert DataShape.of(to.data.declared(8, 90, input_type="int64", target_shape=(8,))) == DataShape(
        (8,), "int64", (8,), classes=90
    )


class Waiting:
    """A server in a thread that waits for its first client."""

    def __init__(self, folder, trial, **options):
        self.url, self.codes, self.result, ready = "", [], [], threading.Event()

        def begun(url, codes):
            self.url, self.codes = url, codes
            ready.set()

        options = Options(port=0, rate=0, **options)
        work = lambda: self.result.append(first_shape(folder, options, ANNOUNCEMENT, trial, 7, begun))  # noqa: E731
        self.thread = threading.Thread(target=work)
        self.thread.start()
        assert ready.wait(30)

    def enroll(self, data, **body):
        body = {"protocol": 2, "data": data, **body}
        return httpx2.post(f"{self.url}/v1/enrol", json=body, headers={"authorization": f"Bearer {'t' * 40}"})


def test_shape_of_a_refused_client_is_not_recorded(folder):
    """Hostile shapes, no code, and a model that does not fit leave the server waiting; the first good one is noted."""
    tried = []

    def trial(shape):
        tried.append(shape)
        if shape.inputs == (6,):
            raise ConfigurationError("the model does not fit")
        return shape

    server = Waiting(folder, trial, enrollment="codes")
    code = {"code": server.codes[0]}
    assert server.enroll(told(inputs=[1 << 30]), **code).status_code == 400
    assert server.enroll([1], **code).status_code == 400
    assert server.enroll(told(), protocol=1).status_code == 426
    assert server.enroll(told()).status_code == server.enroll(told(), code="guessed").status_code == 403
    assert server.enroll(None, **code).status_code == 503
    misfit = server.enroll(told(inputs=[6]), **code)
    assert misfit.status_code == 422
    assert misfit.json()["reason"].startswith("the model does not fit (the examples of this client have inputs [6]")
    assert httpx2.get(f"{server.url}/v1/status").status_code == 401
    token = {"authorization": f"Bearer {server_token(folder)}"}
    assert httpx2.get(f"{server.url}/v1/status", headers=token).json()["state"] == "waiting for the shape of the data"
    assert httpx2.get(f"{server.url}/v1/run").json()["input_shape"] is None
    assert httpx2.get(f"{server.url}/v1/models/x").headers["retry-after"] == "2"
    assert "turnout_steps_total 0" in httpx2.get(f"{server.url}/metrics", headers=token).text
    assert not server.result
    assert server.enroll(told(), **code).json() == SHAPE.settings()
    server.thread.join(30)
    assert server.result == [SHAPE]
    assert tried == [DataShape((6,), "float32", (), classes=3), SHAPE]
    # A server that was killed once the shape was noted, and starts again, waits for nobody.
    assert first_shape(folder, Options(port=0), ANNOUNCEMENT, trial) == SHAPE


def test_declared_shape_needs_no_first_client(folder):
    store = Store(folder)
    store.commit([Entry(1, 0.0, 0.0, "enrol", client=0, digest="0" * 64)])
    store.close()
    with pytest.raises(ConfigurationError, match="has another declaration: write --inputs as when it began"):
        first_shape(folder, Options(port=0), ANNOUNCEMENT, lambda shape: shape)


def test_serve_without_data_and_join_on_the_command_line(folder):
    """The first client tells the shape; the run, its restart and its replay have it, and clients of another are refused."""
    (folder / "own.py").write_text(OWN)
    (folder / "run.toml").write_text(
        'rounds = 2\nalgorithm = "fedavg"\ndata = {inputs = "auto", classes = 4}\nmodel = {name = "mlp", hidden = [3]}\n'
    )
    run, port, data = folder / "run", free_port(), f"{folder / 'own.py'}:"
    serve = ["serve", str(folder / "run.toml"), "--folder", str(run), "--port", str(port), "--min-clients", "1"]
    server = command_line(folder, *serve, "--linger", "0.5")
    server.wait_for(lambda: "waiting at" in server.output)
    assert "waiting for the shape of the data" in cli("status", run)
    url = f"http://127.0.0.1:{port}"
    announced = httpx2.get(f"{url}/v1/run").json()
    assert (announced["input_shape"], announced["secure"], announced["evaluation"]) == (None, None, {})
    said = cli("join", url, "--data", f"{data}examples", "--state", folder / "a", "--log", folder / "sent.jsonl")
    assert "the run is over: 2 reports were taken" in said
    assert '"data": {"inputs": [5], "input_type": "float32"' in (folder / "sent.jsonl").read_text()
    server.ended()
    assert "run │ finished │ 2 of 2" in cli("status", run)
    again = command_line(folder, *serve, "rounds=3", "--linger", "0.5")
    again.wait_for(lambda: "serving at" in again.output)
    starts = [json.loads(line) for line in (run / "environments.jsonl").read_text().splitlines()]
    assert [start["step"] for start in starts] == [0, 2]
    assert all({"date", "command", "turnout", "torch"} <= start.keys() for start in starts)
    assert httpx2.get(f"{url}/v1/run").json().keys() == announced.keys()
    assert "an example has" not in (refused := cli("join", url, "--data", f"{data}square", code=2))
    assert (
        "have inputs [8, 8] of float32 and 3 classes, and those of the run inputs [5] of float32 and 4 classes"
        in refused
    )
    answer = httpx2.post(
        f"{url}/v1/enrol",
        json={"protocol": 2, "data": told(inputs=[9])},
        headers={"authorization": f"Bearer {'u' * 40}"},
    )
    assert answer.status_code == 422
    assert "inputs [9] of float32 and 3 classes, and those of the run inputs [5]" in answer.json()["reason"]
    assert "1 reports were taken" in cli("join", url, "--data", f"{data}more", "--state", folder / "a")
    again.ended()
    assert "the same model as in the checkpoint, bit for bit" in cli("replay", run)
