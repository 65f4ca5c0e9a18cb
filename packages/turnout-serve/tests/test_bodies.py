"""What a server sees: every body that it receives, held against the table of the guide to privacy."""

import contextlib
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.laws.recipes import LOCAL
from tests.tiny import SIZES

import turnout as to
from turnout.evaluation.queries import Question
from turnout.pieces.aggregation import PrivateSum, SecureSum
from turnout.privacy import Answers
from turnout_serve.client.newcomer import Newcomer
from turnout_serve.client.state import ClientState
from turnout_serve.server.first_client import FirstClient
from turnout_serve.server.options import Options
from turnout_serve.wire.data_shape import DataShape
from turnout_serve.wire.format import decode, read_manifest

from .test_evaluate import experiment, held_out
from .world import FIVE, Host

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "privacy.md"
SECURE = SecureSum(fraction_bits=16, largest=1.0)
NOISE = PrivateSum(norm=0.3, noise_multiplier=0.5)
PIECES = {
    "none of these": (),
    "`PrivateSum`": (NOISE,),
    "`SecureSum`": (SecureSum(largest=64.0),),
    "`PrivateSum(secure=...)`": (replace(NOISE, secure=SECURE),),
    "`PrivateSum(secure=..., noise_shares=n, dropouts=t)`": (
        replace(NOISE, noise_shares=5, dropouts=1, secure=SECURE),
    ),
}


@pytest.fixture
def bodies(monkeypatch):
    """Every body that clients send: those of reports by phase, all others by route."""
    received, phases, send = defaultdict(list), {}, Host.send

    def recorded(self, method, path, body=b"", headers=None, cut=None):
        answer = send(self, method, path, body, headers, cut)
        token = (headers or {}).get("authorization")
        if path == "/v1/checkin" and (task := answer.table().get("task")):
            phases[token, str(task["task"])] = task["phase"]
        if body:
            received[phases[token, path.split("/")[3]] if path.endswith("/report") else path].append(body)
        return answer

    monkeypatch.setattr(Host, "send", recorded)
    return received


def documented(row):
    """Return the tensors of each phase that the guide lists in a row of its table."""
    found = re.search(rf"^\| {re.escape(row)} \| (`.*?) \|", GUIDE.read_text(), flags=re.MULTILINE)
    assert found is not None
    phases = (part.partition(":") for part in found[1].split(";"))
    return {phase.strip(" `"): set(re.findall(r"`([\w.]+)`", names)) for phase, _, names in phases}


def tensors(body):
    return decode(body, read_manifest(body))


def check(bodies, data, *rows, without=(), enrollment=frozenset({"protocol"})):
    """Hold what the server received against rows of the guide."""
    found = {
        phase: {name for body in sent for name in read_manifest(body)} - set(without)
        for phase, sent in bodies.items()
        if phase[0] != "/"
    }
    assert found == {phase: names for row in rows for phase, names in documented(row).items()}
    routes = {
        route: {name for body in sent for name in json.loads(body)} for route, sent in bodies.items() if route[0] == "/"
    }
    assert routes == {"/v1/enrol": enrollment, "/v1/checkin": {"protocol", "wait", "after"}}
    everything = b"".join(body for sent in bodies.values() for body in sent)
    assert len(data.train.x)
    assert not any(example.numpy().tobytes() in everything for example in data.train.x)


def run(*pieces):
    everyone = to.Population(to.availability.Everyone())
    return to.Experiment(FIVE, to.models.Logistic(), to.fedau(LOCAL, also=pieces), everyone, rounds=1)


@pytest.mark.parametrize("row", PIECES)
def test_training_sends_only_the_documented_content(row, world, bodies):
    """No example is sent, and no update where updates are masked."""
    world(run(*PIECES[row])).run()
    check(bodies, FIVE, row)
    if "mask" in bodies:
        words = torch.cat([tensors(body)["masked"][0].double() for body in bodies["mask"]]) / 2**32 % 1
        assert len(words) == 5 * 272
        assert (
            abs(float(words.mean()) - 0.5) < 0.05
        )  # uniform; of fixed-point updates without masks all are near 0 or 1
        assert float(((words < 0.1) | (words > 0.9)).double().mean()) < 0.3


def test_a_server_that_takes_the_shape_of_the_first_client(world, bodies):
    """Gets with each enrollment the same few sizes and types, waiting or not, and in reports what it gets of any run."""
    shape = DataShape.of(FIVE)
    deployed = world(run(), shape=shape.settings())
    running, first = deployed.host.app, FirstClient(deployed.host.store, Options(), {}, lambda told: told)
    deployed.host.app, session, answer = first.app(), Newcomer(ClientState(), data=shape.settings()).session(), None
    with contextlib.suppress(StopIteration):
        while True:
            answer = deployed.host.call(session.send(answer))
    assert first.shape == shape
    deployed.host.app = running
    deployed.run()
    enrollments = [json.loads(body) for body in bodies["/v1/enrol"]]
    assert enrollments == [{"protocol": 2, "data": shape.settings()}] * (FIVE.num_clients + 1)
    assert shape.settings().keys() == documented("enrollment with `--inputs auto`")["enroll"]
    check(bodies, FIVE, "none of these", enrollment=frozenset({"protocol", "data"}))


def test_a_private_sum_is_no_protection_from_its_server(world, bodies, folder):
    """The server gets the very bytes that it gets without `PrivateSum`."""
    world(run(), folder=folder / "plain").run()
    world(run(NOISE), folder=folder / "private").run()
    plain, private = sorted(bodies["train"][:5]), sorted(bodies["train"][5:])
    assert len(plain) == 5
    assert plain == private
    assert all(float(tensors(body)["delta"].abs().max()) > 0 for body in plain)


ASKED = {
    "none of these": "without masks",
    "`PrivateSum`": "without masks",
    "`SecureSum`": "under masks",
    "`PrivateSum(secure=...)`": "under masks",
    "`PrivateSum(secure=..., noise_shares=n, dropouts=t)`": "under masks",
}


@pytest.mark.parametrize("row", ASKED)
def test_evaluations_and_queries_send_only_the_documented_content(row, world, bodies):
    """Gets sums over the examples of a client, and under masks keys, shares and numbers that look like chance."""
    pieces = tuple(replace(p, answers=Answers(most=9)) if isinstance(p, PrivateSum) else p for p in PIECES[row])
    asked = experiment(
        to.fedau(LOCAL, also=pieces), rounds=1, evaluate_every=1, data=held_out(range(5), sizes=SIZES[:5])
    )
    deployed = world(asked)
    for kind in ("label_histogram", "variance"):
        bound = 4.0 if kind == "variance" else None
        deployed.host.service.survey("query", question=Question(kind, bound=bound))
    deployed.run()
    bins = {"client_bins"} if row == "`PrivateSum`" else set()  # of accuracies, where figures are of sums alone
    assert {name for body in bodies["evaluate"] for name in read_manifest(body)} >= bins
    check(bodies, asked.data, row, f"`evaluate` {ASKED[row]}", f"`query` {ASKED[row]}", without=bins)
    if ASKED[row] == "under masks":
        answers = [tensors(body)["masked"] for body in bodies["mask"] if read_manifest(body)["masked"].dtype == "I64"]
        words = torch.cat([answer[0].double() for answer in answers]) / 2.0**64 % 1
        assert len(words) > 5 * (3 + 20)
        # 0.8 of uniform words, and none of sums without masks, are in the middle.
        inside = ((words > 0.1) & (words < 0.9)).double().mean()
        assert inside > 0.5
    else:
        assert {tuple(tensors(body)["loss"].shape) for body in bodies["evaluate"]} == {(1,)}
