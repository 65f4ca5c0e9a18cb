"""The gradient over all data of a client, of any size, compared with autograd on one batch."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from turnout.core.random import uniform
from turnout.data.transforms import Transform
from turnout.engine.choice import Engine
from turnout.engine.cohort import Clients
from turnout.engine.compile import compiled as replay
from turnout.engine.full_batch import BLOCK, full_gradient
from turnout.engine.objective import Objective

from ..tiny import classification

ENGINES: tuple[Engine, ...] = ("vectorized", "one_by_one")


@dataclass(frozen=True)
class Noise(Transform):
    """Adds a random number to each sample, in training."""

    random: ClassVar[bool] = True

    def apply(self, x, keys):
        assert keys is not None
        return x + uniform(keys).to(x.dtype)[:, None]


@dataclass(frozen=True)
class Double(Transform):
    """Not random: it belongs to the data."""

    random: ClassVar[bool] = False

    def apply(self, x, keys):
        del keys
        return 2 * x


def net(dropout=0.5):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 6), nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 4)).double()


def clients_of(ids, sizes, engine: Engine = "vectorized", transforms=(Noise(), Double())):
    ids = np.asarray(ids, dtype=np.int64)
    data = classification(tuple(sizes), dtype=torch.float64)
    return Clients(ids, ids, data.train, Objective(net(), engine=engine), transforms)


def by_autograd(clients, row, params):
    """Loss and gradient of one client from all its data at once, by the module itself."""
    module = net().eval()
    nn.utils.vector_to_parameters(params, module.parameters())
    x, y = clients.shards.client(int(row))
    loss = nn.functional.cross_entropy(module(2 * x), y)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])


def assert_right(clients, params):
    loss, gradient = full_gradient(clients, params)
    for k, row in enumerate(clients.rows):
        expected = by_autograd(clients, row, params if params.dim() == 1 else params[k])
        torch.testing.assert_close(loss[k], expected[0], rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(gradient[k], expected[1], rtol=1e-11, atol=1e-14)


sizes = st.sampled_from([1, 2, 127, 128, 129, 255, 256, 257, 300]) | st.integers(1, 40)


@settings(max_examples=25, deadline=None)
@given(st.lists(sizes, min_size=1, max_size=5), st.booleans(), st.sampled_from(ENGINES), st.randoms())
def test_equals_the_gradient_of_the_mean_loss(sizes, one_model, engine, random):
    """Without dropout and random transforms, but with fixed ones; in any order, with repeats."""
    ids = random.choices(range(len(sizes)), k=random.randint(1, 2 * len(sizes)))
    clients = clients_of(ids, sizes, engine)
    noise = torch.randn(
        len(ids), clients.objective.layout.num_params, generator=torch.Generator().manual_seed(1)
    ).double()
    assert_right(clients, clients.objective.initial if one_model else clients.objective.initial + noise)


def test_cases_include_edges_of_blocks():
    assert BLOCK == 128


@pytest.mark.parametrize("engine", ENGINES)
def test_results_do_not_depend_on_other_clients(engine):
    """Full blocks beside partial ones, and clients of one block beside clients of three."""
    sizes = (300, 1, 129, 128, 64, 257, 256, 2)
    together = full_gradient(clients_of(range(8), sizes, engine), net_params())
    for ids in ([3], [0], [6, 3], [7, 1, 4], [5, 2]):
        some = full_gradient(clients_of(ids, sizes, engine), net_params())
        for found, all_ in zip(some, together, strict=True):
            assert torch.equal(found, all_[ids])


def net_params():
    return Objective(net()).initial


@pytest.mark.parametrize("engine", ENGINES)
def test_intermediate_training_steps_change_nothing(engine, monkeypatch):
    """The model switches modes, and each mode replays its own operations."""
    monkeypatch.setattr(replay, "_CALLS", 0)
    clients = clients_of([0, 1], (20, 20), engine)
    params, keys = clients.objective.initial.expand(2, -1), torch.arange(2)
    x, y = clients.minibatch(torch.arange(40).view(2, 20), None)
    for _ in range(4):
        assert_right(clients, clients.objective.initial)
        _, dropped = clients.objective.gradient(params, x, y, None, keys)
        _, other = clients.objective.gradient(params, x, y, None, keys + 5)
        assert (dropped - full_gradient(clients, clients.objective.initial)[1]).norm() > 0.01
        assert (dropped - other).norm() > 0.01  # training still drops, by the key


def test_given_model_is_unchanged():
    clients, params = clients_of([1, 0, 2], (5, 200, 7)), net_params()
    rows = params.repeat(3, 1)
    full_gradient(clients, params)
    full_gradient(clients, rows)
    assert torch.equal(params, net_params())
    assert torch.equal(rows, net_params().repeat(3, 1))


def test_empty_cohort_has_no_gradient():
    loss, gradient = full_gradient(clients_of([], (5, 4)), net_params())
    assert loss.shape == (0,)
    assert gradient.shape == (0, len(net_params()))
