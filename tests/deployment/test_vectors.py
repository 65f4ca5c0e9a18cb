"""Test vectors: another language replays them, and every exchange agrees with the OpenAPI document."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import turnout
from turnout.cli.conform import models_of, secure_of
from turnout.deployment.conform.vectors import write
from turnout.deployment.server.routes import ROUTES
from turnout.deployment.wire.format import read_manifest

from . import agreement

pytest.importorskip("cryptography", reason="secure sums take cryptography, an extra")
NODE = shutil.which("node")
MODULE = Path(turnout.__file__).parent / "deployment/client/javascript/turnout.js"


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    files = write(folder, models_of(), secure_of())
    assert {path.name for path in folder.iterdir()} == {path.name for path in files}
    return folder


def read(folder, name):
    return json.loads((folder / name).read_text())


def content(body):
    """The bytes of a body of a vector."""
    return json.dumps(body["json"]).encode() if "json" in body else base64.b64decode(body.get("base64", ""))


@pytest.mark.skipif(NODE is None, reason="there is no Node here: apt-get install nodejs")
def test_the_javascript_client_replays_them(vectors):
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
    # What needs a slow client, a large head, a broken server, or the end of a run.
    assert documented - statuses == {408, 431, 500, 503}
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
    assert names["mask"] == {"masked", "refused"}
    assert names["open"] == {"self_masks", "masking_keys"}
    assert torch.tensor(secure["delta"]).norm() > 0.01
