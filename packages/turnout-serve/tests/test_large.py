"""Large reports: mapped into memory in place of being read, checked one at a time, and summed to the same bits."""

import pytest
import torch

from turnout.simulation import Simulation
from turnout_serve.server.http import task_routes
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.store import files
from turnout_serve.wire.format import WireError, decode, encode, manifest

from .test_failures import RUN
from .test_hostile import put, task_of, waiting


@pytest.fixture
def mapped(monkeypatch):
    """Every report counts as large."""
    for module in (task_routes, files):
        monkeypatch.setattr(module, "LARGE", 0)


@pytest.mark.usefixtures("mapped")
def test_memory_mapped_reports_give_the_same_model(world):
    simulation = Simulation(RUN)
    for _ in range(RUN.rounds):
        simulation.round()
    deployed = world(RUN).run()
    assert torch.equal(deployed.host.driver.params, simulation.state.params)
    deployed.host.service.writer.checkpoint()
    assert replay(deployed.setting, deployed.folder).same is True


@pytest.mark.usefixtures("mapped")
def test_large_reports_are_checked(world):
    deployed = world(RUN)
    for home in (*deployed.homes, *deployed.homes):
        home.train(deployed.host)
    body = waiting(deployed.homes[0])
    for bad in (body[:100], b"no safetensors" * 10, encode({"delta": torch.zeros(1, 3)})):
        if deployed.host.driver.task_of(0) is not None:
            assert put(deployed, 0, task_of(deployed, 0), bad).status == 422
    for home in deployed.homes[1:-1]:
        home.step(deployed.host)
    digest = next(entry.digest for entry in deployed.host.store.entries() if entry.kind == "report")
    deployed.host.store.files.report(digest).write_bytes(b"damaged")
    deployed.homes[-1].step(deployed.host)
    assert deployed.host.driver.version == 1
    assert deployed.host.driver.ledger.dropped["unusable"] == 1


def test_decoding_a_file_equals_decoding_its_bytes(tmp_path):
    tensors = {"delta": torch.arange(12.0).reshape(1, 12), "n": torch.ones(1, dtype=torch.int64)}
    path, expected = tmp_path / "report", manifest(tensors)
    path.write_bytes(body := encode(tensors))
    found = decode(path, expected)
    assert all(torch.equal(found[name], value) for name, value in decode(body, expected).items())
    found["delta"].zero_()
    assert path.read_bytes() == body  # what is done to the tensors does not reach the file
    for damaged in (body[:-1], body[:7], b"", body[:8] + b"[" + body[9:], body + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(WireError):
            decode(path, expected)
        with pytest.raises(WireError):
            decode(damaged, expected)
