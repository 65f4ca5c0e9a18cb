"""Test vectors: another language replays them, and every exchange agrees with the OpenAPI document."""

import base64
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import turnout_serve
from turnout.evaluation.queries import KINDS
from turnout_serve.cli.conform import models_of, secure_of, surveys_of
from turnout_serve.conform.vectors import write
from turnout_serve.server.http.app import ROUTES
from turnout_serve.wire.format import read_manifest

from . import agreement

pytest.importorskip("cryptography", reason="secure sums take cryptography, an extra")

from tests.node import NODE, needs_node
from tests.oracles import secagg

MODULE = Path(turnout_serve.__file__).parent / "client/javascript/turnout.js"


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    files = write(folder, models_of(), secure_of(), surveys_of())
    assert {path.name for path in folder.iterdir()} == {path.name for path in files}
    return folder


def read(folder, name):
    return json.loads((folder / name).read_text())


def content(body):
    """The bytes of a body of a vector."""
    return json.dumps(body["json"]).encode() if "json" in body else base64.b64decode(body.get("base64", ""))


@needs_node
def test_javascript_client_replays_the_vectors(vectors):
    command = [str(NODE), str(Path(__file__).parent / "javascript/replay.mjs"), MODULE.as_uri(), str(vectors)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) == 3 + 4 + 4 + 3 + 1


def test_exchanges_have_each_refusal_and_agree_with_the_document(vectors):
    found = read(vectors, "exchanges.json")
    for each in found:
        request, answer = each["request"], each["answer"]
        route = agreement.route_of(request["path"])
        if route is not None and route.method == request["method"]:
            agreement.check(request["path"], answer["status"], answer["headers"], content(answer))
    statuses = {each["answer"]["status"] for each in found}
    documented = {status for route in ROUTES for status in route.statuses}
    # What needs a server that knows no shape, a slow client, a body without a length, a large head, a broken server, or the
    # end of a run.
    assert documented - statuses == {202, 408, 411, 431, 500, 503}
    named = {each["name"]: each["answer"] for each in found}
    assert named["the first half of a report"]["status"] == 409
    assert named["ask how much of it is here"]["json"]["offset"] > 0
    assert named["the rest of the report"]["status"] == 201
    assert named["the report once more"]["status"] == 200
    assert named["another report on the same task"]["status"] == 409


def test_a_secure_sum_has_all_its_messages(vectors):
    """Four clients in four phases; the reports of the first hold keys and no update."""
    secure = read(vectors, "secure.json")
    phases = [each["task"]["phase"] for each in secure["messages"]]
    assert {phase: phases.count(phase) for phase in phases} == {"train": 4, "share": 4, "mask": 4, "open": 4}
    names = {each["task"]["phase"]: set(read_manifest(base64.b64decode(each["report"]))) for each in secure["messages"]}
    assert names["train"] == {"keys", "num_examples", "num_steps", "seen.loss"}
    assert names["share"] == {"sealed"}
    assert names["mask"] == {"masked", "refused", "evidence"}
    assert names["open"] == {"self_masks", "masking_keys"}
    assert torch.tensor(secure["delta"]).norm() > 0.01


def test_primitives_are_those_of_the_transcription(vectors):
    found, keys = read(vectors, "primitives.json"), {}
    for number, both in found["keys"].items():
        keys[number] = bytes.fromhex(both["private"])
        assert secagg.public(keys[number]).hex() == both["public"]
    other = bytes.fromhex(found["keys"]["5"]["public"])
    assert {purpose: secagg.agree(keys["2"], other, purpose).hex() for purpose in found["agree"]} == found["agree"]
    seed = bytes.fromhex(found["seed"])
    assert {bits: [str(word) for word in secagg.expand(seed, 5, int(bits))] for bits in found["expand"]} == found[
        "expand"
    ]
    shares = {x: bytes.fromhex(share) for x, share in found["share"]["shares"].items()}
    coefficients = [int(a) for a in found["share"]["coefficients"]]
    for x, share in shares.items():
        assert int.from_bytes(share, "big") == sum(a * int(x) ** i for i, a in enumerate(coefficients)) % secagg.PRIME
        assert secagg.commit(share).hex() == found["commit"][x]
    receiver = secagg.Participant(5, {"bits": 32, "fraction_bits": 4, "largest": 8.0})
    receiver.sealing, receiver.t, receiver.weight = keys["5"], 1, 1.0
    receiver.sealing_of = receiver.masking_of = {2: bytes.fromhex(found["keys"]["2"]["public"])}
    row = bytes.fromhex(found["sealed"]["row"])
    _, refused = receiver.mask([2], [row], [0.0])
    assert refused == [False]
    assert receiver.readable[2].hex() == found["sealed"]["B"] + found["sealed"]["M"]


def test_surveys_have_an_evaluation_and_each_kind_of_query(vectors):
    """Their sums are computed once more, as docs/protocol.md has them."""
    found = read(vectors, "surveys.json")
    evaluation, queries = found[0], found[1:]
    x, y, params = (np.array(evaluation[name]) for name in ("inputs", "targets", "params"))
    logits = x @ params[:15].reshape(3, 5).T + params[15:]
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
    report = evaluation["report"]
    assert report["num_examples"] == [len(y)]
    np.testing.assert_allclose(report["loss"], [losses.sum()], rtol=1e-12)
    assert report["score"] == [(logits.argmax(1) == y).sum()]
    kinds = []
    for each in queries:
        question = json.loads(bytes.fromhex(each["task"]["told"]["question"][2]))
        kinds.append(question["kind"])
        x, y = np.array(each["inputs"]), np.array(each["targets"])
        values = y[:, None] if question["of"] == "targets" else x
        values = values if question["column"] is None else values[:, [question["column"]]]
        apart, edges = values - question["center"], question["edges"]
        bins = [
            np.bincount(np.searchsorted(edges, column, side="right"), minlength=len(edges) + 1) for column in values.T
        ]
        expected = {
            "count": {},
            "mean": {"sums": [apart.sum(0)]},
            "variance": {"sums": [apart.sum(0)], "squares": [np.square(apart).sum(0)]},
            "histogram": {"counts": [bins]},
            "quantiles": {"counts": [bins]},
            "label_histogram": {"counts": [[np.bincount(y, minlength=3)]]},
        }[question["kind"]]
        assert set(each["report"]) == {"num_examples", *expected}
        assert each["report"]["num_examples"] == [len(y)]
        for name, sums in expected.items():
            np.testing.assert_allclose(each["report"][name], sums, rtol=1e-12, atol=1e-12)
    assert set(kinds) == set(KINDS)
