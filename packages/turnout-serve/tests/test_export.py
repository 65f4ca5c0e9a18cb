"""The trained model taken out of a deployment: of the folder of a running server, and over HTTP."""

import base64
import hashlib
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load
from tests.laws.recipes import DATA

import turnout as to
from turnout import Experiment, Population, fedau
from turnout.core.checks import CheckpointError
from turnout.models import Mlp
from turnout.population.availability import Everyone
from turnout.record import checkpoint, storage

from .test_hostile import auth
from .test_network import cli
from .world import LOCAL

RUN = Experiment(DATA, Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=6, evaluate_every=2)


def asked(deployed, path="/v1/model", client=0, **headers):
    head = {**auth(deployed, client), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return deployed.host.send("GET", path, b"", head)


def flat(deployed, body):
    tensors = load(body)
    assert tensors.keys() == deployed.setting.trained.names.keys()
    return torch.cat([tensors[name].reshape(-1) for name in deployed.setting.trained.names])


def test_current_model_is_downloaded_as_named_tensors(world):
    """The headers have its version and digest, during the run and after it."""
    deployed, versions = world(RUN), []
    before = asked(deployed)
    assert (before.status, before.table()["reason"]) == (404, "there is no model yet: training has not begun")
    assert before.headers["cache-control"] == "no-store"  # or a proxy says so for minutes to come
    for _ in range(20):
        deployed.round()
        answer = asked(deployed)
        versions.append(int(answer.headers["model-version"]))
        assert (answer.status, versions[-1]) == (200, deployed.host.driver.version)
        assert torch.equal(flat(deployed, answer.body), deployed.host.driver.params)
        digest = hashlib.sha256(answer.body)
        assert answer.headers["repr-digest"] == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
        assert answer.headers["etag"] == f'"{digest.hexdigest()}"'
        name = f"{deployed.host.service.run}-step-{versions[-1]}.safetensors"  # what curl -O -J calls the file
        assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
        assert asked(deployed, if_none_match=answer.headers["etag"]).status == 304
        part = asked(deployed, range="bytes=10-19")
        assert (part.status, part.body, part.headers["etag"]) == (206, answer.body[10:20], answer.headers["etag"])
    assert set(versions) >= {1, 2, 3, 4, 5, 6}
    assert len(list((deployed.folder / "exports").iterdir())) == 4
    assert deployed.host.driver.over is not None


@pytest.mark.parametrize(
    ("text", "status", "first", "last"),
    [
        ("bytes=5-3", 200, 0, None),
        ("bytes=5-5", 206, 5, 6),
        ("bytes= 5-7", 206, 5, 8),
        ("Bytes=5-7 ", 206, 5, 8),
        ("bytes=5-" + 50 * "9", 206, 5, None),
        ("bytes=-4", 206, -4, None),
        ("bytes=-" + 50 * "9", 206, 0, None),
        ("bytes=5 -7", 200, 0, None),
        ("bytes=-", 200, 0, None),
        ("bytes=+5-7", 200, 0, None),
        ("bytes=0-1,4-5", 200, 0, None),
        ("bytes=5-" + 5000 * "9", 200, 0, None),
        ("lines=5-7", 200, 0, None),
        ("bytes 5-7", 200, 0, None),
        ("", 200, 0, None),
        ("bytes=-0", 416, 0, 0),
        ("bytes=" + 50 * "9" + "-", 416, 0, 0),
    ],
)
def test_ranges_are_read_as_http_has_them(world, text, status, first, last):
    """What is invalid, or not supported, is ignored (RFC 9110, 14.1.1 and 14.2); 416 is for a range without any byte."""
    deployed = world(RUN)
    deployed.round()
    whole, part = asked(deployed), asked(deployed, range=text)
    size, begin = len(whole.body), first % len(whole.body)
    assert (part.status, part.body) == (status, whole.body[first:last])
    about = {206: f"bytes {begin}-{begin + len(part.body) - 1}/{size}", 416: f"bytes */{size}"}
    assert part.headers.get("content-range") == about.get(status)


def test_export_requires_a_token(world):
    deployed = world(RUN)
    deployed.round()
    assert deployed.host.send("GET", "/v1/model").status == 401
    assert deployed.host.send("GET", "/v1/model", b"", {"authorization": f"Bearer {'x' * 40}"}).status == 401
    assert deployed.host.send("POST", "/v1/model", b"", auth(deployed, 0)).status == 405


def test_current_model_is_exported_without_clients(world):
    """All clients left after the last report of a step: the export has the model after that step."""
    deployed = world(RUN)
    for _ in range(2):
        deployed.round()
    for client in range(8):
        deployed.host.service.leave(client)
    deployed.host.pump()
    answer = asked(deployed)
    assert int(answer.headers["model-version"]) == deployed.host.driver.version
    assert torch.equal(flat(deployed, answer.body), deployed.host.driver.params)


def test_personalized_run_exports_the_model_of_a_newcomer(world):
    deployed = world(replace(RUN, algorithm=to.fedper(LOCAL, cohort_size=4)))
    for _ in range(3):
        deployed.round()
    tensors, params = load(asked(deployed).body), deployed.host.driver.params
    assert sum(value.numel() for value in tensors.values()) > len(params)
    deployed.host.service.writer.checkpoint()
    saved = to.load(deployed.folder).state_dict()
    assert all(torch.equal(tensors[name], saved[name]) for name in saved)


def test_full_disk_answers_503_to_an_export(world, monkeypatch):
    deployed = world(RUN)
    deployed.round()

    def full(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("turnout_serve.server.run.publication.Path.write_bytes", full)
        assert asked(deployed).status == 503
    assert asked(deployed).status == 200


def test_running_servers_folder_can_be_read(world, tmp_path):
    """`to.load` and `turnout export` read the model of the last checkpoint, and change nothing."""
    deployed = world(RUN, checkpoint_every=0.0)
    with pytest.raises(CheckpointError, match="has saved no model yet: it saves a minute after its first step"):
        to.load(deployed.folder)
    deployed.round()
    for _ in range(3):
        deployed.round()
        result = to.load(deployed.folder)
        assert result.history.last_round == deployed.host.driver.version
        assert torch.equal(torch.cat([p.reshape(-1) for p in result.model.parameters()]), deployed.host.driver.params)
    before = sorted((path, path.stat().st_mtime_ns) for path in deployed.folder.rglob("*"))
    said = cli("export", deployed.folder, tmp_path / "model.safetensors")
    assert f"after {deployed.host.driver.version} rounds" in said
    assert sorted((path, path.stat().st_mtime_ns) for path in deployed.folder.rglob("*")) == before
    deployed.run()


def test_saving_during_a_read_of_the_folder_is_harmless(world, monkeypatch):
    """A file that is replaced between two reads is not taken for damaged."""
    deployed, models = world(RUN, checkpoint_every=0.0), {}

    def saves():
        deployed.round()
        models[deployed.host.driver.version] = deployed.host.driver.params

    saves()
    saves()
    read, left = storage.digest, [3]

    def meanwhile(path):
        found = read(path)
        if left[0]:
            left[0] -= 1
            monkeypatch.setattr(storage, "digest", read)
            saves()
            monkeypatch.setattr(storage, "digest", meanwhile)
        return found

    monkeypatch.setattr(storage, "digest", meanwhile)
    result = to.load(deployed.folder)
    assert left == [0]
    params = torch.cat([p.reshape(-1) for p in result.model.parameters()])
    assert torch.equal(params, models[result.history.last_round])
    path = deployed.folder / checkpoint.FILE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="is damaged"):
        to.load(deployed.folder)
