"""Backends that execute traces."""

from dataclasses import replace

import pytest
import torch

from turnout import Experiment, Sgd, compose, models
from turnout.core.checks import ConfigurationError
from turnout.engine.compile import backends
from turnout.engine.compile import compiled as replay
from turnout.engine.compile.backends import BACKENDS, SETTING, usable
from turnout.engine.objective import Objective
from turnout.simulation import Simulation

from ...tiny import classification


def trained(monkeypatch, backend):
    """A simulation after three rounds, traced as soon as may be."""
    monkeypatch.setattr(replay, "_CALLS", 0)
    monkeypatch.setattr(replay, "_shared", {})
    monkeypatch.setenv(SETTING, backend)
    algorithm = compose(Sgd(lr=0.1, steps=3, batch_size=4, momentum=0.5))
    simulation = Simulation(Experiment(classification(), models.Mlp(hidden=(5,)), algorithm, rounds=3))
    for _ in range(3):
        simulation.round()
    return simulation


needs_torchscript = pytest.mark.skipif(
    backends.torchscript.lacking() is not None, reason=str(backends.torchscript.lacking())
)


@needs_torchscript
def test_results_do_not_depend_on_the_backend(monkeypatch):
    found = {backend: trained(monkeypatch, backend) for backend in ("plain", "torchscript")}
    params = [simulation.state.params for simulation in found.values()]
    assert torch.equal(*params)
    for backend, simulation in found.items():
        assert simulation.objective.backends.keys() == {backend}


def test_traces_are_plain_without_torchscript(monkeypatch):
    lacking = replace(BACKENDS["torchscript"], lacking=lambda: "not in this version")
    monkeypatch.setitem(BACKENDS, "torchscript", lacking)
    assert trained(monkeypatch, "auto").objective.backends.keys() == {"plain"}


@needs_torchscript
def test_every_device_has_an_always_available_backend(monkeypatch):
    assert [backend.name for backend in usable({"cpu"})] == ["torchscript", "plain"]
    assert [backend.name for backend in usable({"cuda"})] == ["cuda_graph", "plain"]
    assert [backend.name for backend in usable({"cpu", "cuda"})] == ["plain"]
    monkeypatch.setenv(SETTING, "torchscript")
    assert [backend.name for backend in usable({"cuda"})] == ["plain"]


@needs_torchscript
def test_missing_torchscript_is_detected(monkeypatch):
    torchscript = backends.torchscript
    assert torchscript.lacking() is None
    with monkeypatch.context() as patch:
        patch.delattr(torch.jit, "CompilationUnit")
        assert torchscript.lacking() == "this version of PyTorch has no torch.jit.CompilationUnit"
    with monkeypatch.context() as patch:
        patch.setattr(torchscript.sys, "version_info", (3, 14, 0))
        assert torchscript.lacking() == "TorchScript does not support Python 3.14 and later"


def test_unknown_backend_is_refused(monkeypatch):
    monkeypatch.setenv(SETTING, "torchscrip")
    with pytest.raises(ConfigurationError, match="unknown TURNOUT_BACKEND 'torchscrip': did you mean 'torchscript'"):
        Objective(torch.nn.Linear(2, 2))


def test_cuda_graphs_are_used_only_on_request(monkeypatch):
    monkeypatch.setenv(SETTING, "cuda_graph")
    assert [backend.name for backend in usable({"cuda"})] == ["cuda_graph", "plain"]
    assert [backend.name for backend in usable({"cpu"})] == ["plain"]
