"""Functions whose operations depend on the values of their arguments are not replaced by a trace."""

import collections
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from turnout import Experiment, Sgd, average_participating, selection
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.engine.compile import compiled as replay
from turnout.engine.compile import cuda_graph, plain
from turnout.engine.compile.backends import BACKENDS, SETTING
from turnout.engine.compile.compiled import Compiled
from turnout.simulation import Simulation

from ...logs import logged
from .test_compiled import repeat, scripted_by
from .test_cuda_graph import stand_in


class Model(nn.Module):
    """A classifier of rows of twelve numbers."""

    def __init__(self, width=12):
        super().__init__()
        self.linear = nn.Linear(width, 3)


class ToList(Model):
    def forward(self, x):
        return self.linear(x) / (1 + sum(self.linear.bias.detach().abs().tolist()))


class ToNumpy(Model):
    def forward(self, x):
        return self.linear(x) / (1 + float(np.linalg.norm(self.linear.weight.detach().numpy())))


class ToArray(Model):
    def forward(self, x):
        return self.linear(x) / (1 + float(np.abs(np.asarray(self.linear.weight.detach())).sum()))


class Item(Model):
    def forward(self, x):
        return self.linear(x) / (1 + self.linear.bias.detach().abs().sum().item())


class Branch(Model):
    def forward(self, x):
        z = self.linear(x)
        return z if x.sum() > 0 else 2 * z


class Counting(Model):
    def forward(self, x):
        number = collections.Counter(bool(value > 0) for value in x.detach().flatten())
        return self.linear(x) * number[True] / x.numel()


class Unique(Model):
    def forward(self, x):
        return self.linear(x) / len(torch.unique(x.detach().round()))


class BooleanIndex(Model):
    def forward(self, x):
        z = self.linear(x)
        return z - z[z > 0].mean()


class Nonzero(Model):
    def forward(self, x):
        return self.linear(x) / (1 + len((x > 0).nonzero()))


class Packed(Model):
    def __init__(self):
        super().__init__(4)
        self.cell = nn.LSTM(1, 4, batch_first=True)

    def forward(self, x):
        lengths = (x > 0).sum(dim=1).clamp(min=1).cpu()
        packed = pack_padded_sequence(x[:, :, None], lengths, batch_first=True, enforce_sorted=False)
        states, lengths = pad_packed_sequence(self.cell(packed)[0], batch_first=True)
        return self.linear(states.sum(dim=1) / lengths[:, None])


MODELS = (ToList, ToNumpy, ToArray, Item, Branch, Counting, Unique, BooleanIndex, Nonzero, Packed)


def trained(kind):
    """The parameters after some rounds, and what the objective says of its traces."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(200, 12, generator=rng)
    data = FederatedData("x", Shards(x, (x[:, 0] > 0).long(), np.arange(11) * 20), 3)
    torch.manual_seed(1)
    local = Sgd(lr=0.5, steps=4, batch_size=8)
    algorithm = average_participating(local, also=(selection.Uniform(3),))
    simulation = Simulation(Experiment(data, kind(), algorithm, rounds=7, engine="one_by_one", evaluate_every=100))
    for _ in range(6):
        simulation.round()
    return simulation.state.params, simulation.objective.backends


def on_cpu(monkeypatch):
    """Record CUDA graphs by a stand-in for the GPU."""

    def build(traced, arguments, changes, fixed):
        graphed = cuda_graph.Graphed(plain.build(traced, arguments, changes, None), changes, stand_in)
        return graphed if fixed is None else graphed.repeat

    backend = replace(BACKENDS["cuda_graph"], devices=frozenset({"cpu"}), build=build)
    monkeypatch.setitem(BACKENDS, "cuda_graph", backend)
    monkeypatch.setenv(SETTING, "cuda_graph")


@pytest.mark.parametrize("backend", ["auto", "plain", "cuda_graph"])
@pytest.mark.parametrize("kind", MODELS)
def test_models_that_depend_on_values_are_trained_as_without_traces(kind, backend, monkeypatch, by_python):
    expected, _ = by_python(trained, kind)
    monkeypatch.setattr(replay, "_CALLS", 2)
    monkeypatch.setenv(SETTING, backend)
    if backend == "cuda_graph":
        on_cpu(monkeypatch)
    with logged("every step runs in Python, which is slower: ") as said:
        params, backends = trained(kind)
    assert torch.equal(params, expected)
    assert len(said) == 1
    assert list(backends) == said


@pytest.mark.parametrize("backend", ["auto", "plain", "cuda_graph"])
def test_models_of_tensors_are_traced(backend, monkeypatch, by_python):
    """The boolean index that is read, and not the number of true values, is a tensor of values like any other."""

    class Masked(Model):
        def forward(self, x):
            z = self.linear(x)
            z = torch.where(z > 0, z, 0.1 * z)
            return z[:, torch.tensor([2, 1, 0])]

    expected, _ = by_python(trained, Masked)
    monkeypatch.setattr(replay, "_CALLS", 2)
    monkeypatch.setenv(SETTING, backend)
    if backend == "cuda_graph":
        on_cpu(monkeypatch)
    params, backends = trained(Masked)
    assert torch.equal(params, expected)
    assert not any("Python" in name for name in backends)


def hidden(x):
    """Reads a value in a way that no mode of PyTorch sees, like an extension in C."""
    import ctypes

    return ctypes.c_float.from_address(x.data_ptr()).value


@pytest.mark.parametrize("backend", ["auto", "plain", "cuda_graph"])
def test_trace_with_a_value_that_it_hides_is_detected_in_the_next_calls(backend, monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    monkeypatch.setenv(SETTING, backend)
    if backend == "cuda_graph":
        on_cpu(monkeypatch)
    known = {}
    compiled = Compiled(lambda x: x + hidden(x), known=known)
    with logged("a trace of its operations gives other results for the next minibatches"):
        found = [compiled(torch.full((2,), float(i))).tolist() for i in range(5)]
    assert found == [[2.0 * i] * 2 for i in range(5)]
    assert not known


@pytest.mark.parametrize("backend", ["auto", "plain", "cuda_graph"])
def test_repeated_trace_with_a_value_that_it_hides_changes_nothing(backend, monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    monkeypatch.setenv(SETTING, backend)
    if backend == "cuda_graph":
        on_cpu(monkeypatch)
    compiled, total = Compiled(lambda total, x: total.add_(hidden(x)), changes=(0,)), torch.zeros(2)
    with logged("a trace of its operations gives other results"):
        for _ in range(2):
            repeat(compiled, (total,), (torch.arange(6.0)[:, None].expand(6, 2).contiguous(),))
    assert total.tolist() == [30.0, 30.0]


def test_trace_that_fails_in_the_next_call_is_not_used(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)

    def build(*_):
        calls = []

        def fails_later(x):
            calls.append(1)
            if len(calls) > 1:
                raise RuntimeError("shapes differ")
            return x * 2

        return fails_later

    scripted_by(monkeypatch, build)
    compiled = Compiled(lambda x: x * 2)
    with logged("which is slower: RuntimeError: shapes differ"):
        assert [compiled(torch.tensor([value])).item() for value in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0]


def test_wrong_trace_of_another_run_leaves_the_own_one(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 3)
    key = (((torch.Size([2]), torch.float32, True),), None)
    compiled = Compiled(lambda x: x + 1, known={key: lambda x: x + 2})
    found = [compiled(torch.zeros(2)).tolist() for _ in range(9)]
    assert found == [[1.0, 1.0]] * 9
    assert compiled.refused is None
    assert set(compiled.backends.values()) <= {"torchscript", "plain"}


def test_traces_of_many_shapes_replace_the_least_used(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 2)
    monkeypatch.setattr(replay, "_MOST", 2)
    compiled = Compiled(lambda x: x + 1)

    def call(size, times):
        for _ in range(times):
            assert compiled(torch.zeros(size)).tolist() == [1.0] * size

    for size, times in ((1, 50), (2, 5), (3, 6)):
        call(size, times)
    assert [shape[0][0][0] for shape in compiled._traced] == [torch.Size([1]), torch.Size([2])]
    call(3, 10)
    assert {shape[0][0][0] for shape in compiled._traced} == {torch.Size([1]), torch.Size([3])}
    call(4, 40)
    assert {shape[0][0][0] for shape in compiled._traced} == {torch.Size([1]), torch.Size([4])}


@pytest.mark.parametrize(("width", "is_shared"), [(10, True), (100_000, False)])
def test_shared_traces_keep_no_large_tensors(width, is_shared, monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    monkeypatch.setenv(SETTING, "auto")
    frozen, known = torch.ones(width), {}
    compiled = Compiled(lambda x: x * frozen.sum(), known=known)
    for _ in range(5):
        compiled(torch.ones(2))
    assert bool(known) == (is_shared and BACKENDS["torchscript"].lacking() is None)
