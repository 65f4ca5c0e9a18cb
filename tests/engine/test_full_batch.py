"""Evaluation at the received model, compared with plain autograd for one client at a time."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn

from turnout.core.types import Task
from turnout.data.shards import Shards
from turnout.engine.choice import Engine
from turnout.engine.cohort import Clients, Start
from turnout.engine.full_batch import full_gradient, full_scores
from turnout.engine.objective import Objective

from ..tiny import SIZES, classification

ENGINES: tuple[Engine, ...] = ("vectorized", "one_by_one")
N = len(SIZES)


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 7), nn.Tanh(), nn.Dropout(0.5), nn.Linear(7, 4))


def clients_of(ids: Sequence[int] = range(N), engine: Engine = "vectorized", sizes=SIZES):
    rows = np.asarray(ids, dtype=np.int64)
    return Clients(rows, rows, classification(sizes).train, Objective(net(), engine=engine))


def vectors(clients):
    """One vector for each client."""
    generator = torch.Generator().manual_seed(1)
    initial = clients.objective.initial
    return initial + 0.3 * torch.randn(len(clients), len(initial), generator=generator)


def by_hand(clients, params):
    """Loss, accuracy and gradient of each client with the module itself."""
    found = []
    for k, row in enumerate(clients.rows):
        module = net().eval()
        nn.utils.vector_to_parameters(params if params.dim() == 1 else params[k], module.parameters())
        x, y = clients.shards.client(int(row))
        outputs = module(x)
        loss = nn.functional.cross_entropy(outputs, y)
        loss.backward()
        gradient = torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])
        found.append((loss.detach().double(), (outputs.argmax(dim=1) == y).double().mean(), gradient))
    return [torch.stack(parts) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("one_model", [True, False])
@pytest.mark.parametrize("sizes", [SIZES, (300, 2, 129, 1, 128, 3, 257, 64)])
def test_loss_accuracy_and_gradient_equal_plain_autograd(engine, one_model, sizes):
    clients = clients_of([5, 0, 2, 6, 7], engine, sizes)
    params = clients.objective.initial if one_model else vectors(clients)
    loss, accuracy, gradient = by_hand(clients, params)
    scores = full_scores(clients, params)
    torch.testing.assert_close(scores[0], loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scores[1], accuracy, rtol=0, atol=1e-12)
    both = full_gradient(clients, params)
    torch.testing.assert_close(both[0].double(), loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(both[1], gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("one_model", [True, False])
def test_results_do_not_depend_on_other_clients(one_model):
    clients = clients_of()
    params = clients.objective.initial if one_model else vectors(clients)
    together = full_scores(clients, params)
    for ids in ([3], [7, 1], [0, 2, 4, 5]):
        some = full_scores(clients_of(ids), params if one_model else params[ids])
        for found, all_ in zip(some, together, strict=True):
            assert torch.equal(found, all_[ids])


def test_clients_without_examples_have_no_scores():
    shards = classification((5, 4)).train
    shards = Shards(shards.x, shards.y, np.array([0, 5, 5, 9]))
    ids = np.arange(3)
    clients = Clients(ids, ids, shards, Objective(net()))
    for params in (clients.objective.initial, vectors(clients)):
        loss, accuracy = full_scores(clients, params)
        assert torch.isnan(loss).tolist() == torch.isnan(accuracy).tolist() == [False, True, False]
    nobody = Clients(ids[1:2], ids[1:2], shards, clients.objective)
    for params in (clients.objective.initial, clients.objective.initial[None]):
        assert torch.isnan(full_scores(nobody, params)[0]).all()


def test_loss_is_computed_without_gradient_or_reused(monkeypatch):
    clients = clients_of()
    start = Start(Task(clients.objective.initial, 0, 0), clients)
    called = []
    gradient = Objective.gradient
    monkeypatch.setattr(Objective, "gradient", lambda *args, **options: called.append(1) or gradient(*args, **options))
    loss = start.loss
    assert start.known is None
    assert not called
    assert loss.dtype == start.params.dtype
    direction = start.gradient
    assert called
    assert start.known is not None
    assert start.known[0] is start.loss
    assert start.known[1] is direction
    torch.testing.assert_close(start.loss, loss)


def test_numeric_targets_are_scored_by_mean_squared_error():
    shards = classification((5, 4)).train
    shards = Shards(shards.x, torch.zeros(9, 4), shards.offsets)
    ids = np.arange(2)
    clients = Clients(ids, ids, shards, Objective(net(), loss=lambda outputs, y: (outputs - y).square().mean(dim=1)))
    for params in (clients.objective.initial, vectors(clients)):
        loss, square = full_scores(clients, params)
        torch.testing.assert_close(square, loss, check_dtype=False)
