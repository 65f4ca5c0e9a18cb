"""Runs of one process share traces of equal steps."""

import pytest
import torch
from torch import nn

from turnout.engine.compile import compiled as replay
from turnout.engine.compile import torchscript
from turnout.engine.loss import cross_entropy
from turnout.engine.network import Network
from turnout.engine.objective import Objective


class Layer(nn.Module):
    """Counts how often Python calls it, and has options that are no parameters."""

    calls = 0

    def __init__(self, width=4, times=1.0, **more):
        super().__init__()
        self.linear, self.times = nn.Linear(3, width), times
        self.register_buffer("shift", torch.tensor(more.pop("shift", 0.0)))
        self.__dict__.update(more)

    def forward(self, x):
        type(self).calls += 1
        return self.linear(x) * self.times + self.shift


def gradients(module, loss=cross_entropy, **more):
    """Gradients of some clients, five times over, and how often Python called the model for the last four."""
    objective = Objective(module, loss, engine="vectorized", **more)
    torch.manual_seed(1)
    params = objective.initial + torch.randn(5, objective.layout.num_params)
    x, y = torch.randn(5, 6, 3), torch.randint(3, (5, 6))
    found = [objective.gradient(params, x, y, None, torch.arange(5))]
    before = Layer.calls
    found += [objective.gradient(params, x, y, None, torch.arange(5)) for _ in range(4)]
    return found, Layer.calls - before


needs_torchscript = pytest.mark.skipif(torchscript.lacking() is not None, reason="only its traces are shared")


@pytest.fixture(autouse=True)
def _eager(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)


@needs_torchscript
def test_second_run_uses_traces_of_the_first(by_python, monkeypatch):
    gradients(Layer())
    traced = []
    monkeypatch.setattr(replay, "trace", lambda *given: traced.append(given))
    monkeypatch.setattr(replay, "_CALLS", 10**9)
    torch.manual_seed(7)
    module = Layer()
    found, calls = gradients(module)
    assert calls == 2  # to see that it gives the same bits
    assert not traced
    for loss, gradient in found:
        for one, other in zip((loss, gradient), by_python(gradients, module)[0][0], strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    "other", [Layer(times=2.0), Layer(width=5), Layer(shift=1.0), Layer(note="another"), nn.Sequential(Layer())]
)
def test_different_model_has_its_own_traces(other):
    gradients(Layer())
    assert len(replay._shared) == 1
    gradients(other)
    assert len(replay._shared) == 2


def doubled(outputs, targets):
    return 2 * cross_entropy(outputs, targets)


@pytest.mark.parametrize("more", [{"loss": doubled}, {"personal": ("linear.bias",)}])
def test_different_objective_has_its_own_traces(more):
    gradients(Layer())
    gradients(Layer(), **more)
    assert len(replay._shared) == 2


def test_model_with_changed_code_has_its_own_traces(by_python, monkeypatch):
    gradients(Layer())
    monkeypatch.setattr(Layer, "forward", lambda self, x: self.linear(x).tanh())
    torch.manual_seed(7)
    module = Layer()
    found, _ = gradients(module)
    expected = by_python(gradients, module)[0][0]
    assert all(torch.equal(gradient, expected[1]) for _, gradient in found)
    assert len(replay._shared) == 1


def test_incomparable_models_share_nothing():
    assert Network(Layer(note=lambda: 0), torch.device("cpu"), ()).identity is None
    for _ in range(2):
        _, calls = gradients(Layer(note=lambda: 0))
        assert calls == 2  # to see that its own trace gives the same bits
    assert not replay._shared


def test_frozen_parameters_distinguish_models():
    def identity(value, frozen):
        module = Layer()
        nn.init.constant_(module.linear.bias, value)
        module.linear.bias.requires_grad_(not frozen)
        return Network(module, torch.device("cpu"), ()).identity

    assert identity(1.0, False) == identity(2.0, False) != identity(1.0, True) != identity(2.0, True)


def test_recurrent_layers_share_traces_for_other_parameters():
    one, other = (Network(nn.LSTM(3, 4), torch.device("cpu"), ()).identity for _ in range(2))
    assert one is not None
    assert one == other != Network(nn.LSTM(3, 4, bidirectional=True), torch.device("cpu"), ()).identity


def test_most_recently_used_traces_are_kept(monkeypatch):
    monkeypatch.setattr(replay, "_MOST_SHARED", 2)
    first = replay.shared("a")
    for key in ("b", "a", "c"):
        replay.shared(key)
    assert list(replay._shared) == ["a", "c"]
    assert replay.shared("a") is first
