"""Local SGD."""

import numpy as np
import pytest
import torch
from torch import nn

from turnout import ConfigurationError, Sgd, models
from turnout.core.schedule import Halving
from turnout.core.types import Task
from turnout.data.transforms import Transform
from turnout.engine.choice import Engine
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.pieces.local import ShareOfWork, TimeBudget
from turnout.pieces.local.minibatches import plan

MODEL = models.Mlp(hidden=(7,))


def trained(
    local, data, ids, *, task=None, memory=None, module=None, engine: Engine = "auto", corrections=(), version=0
):
    """A report of clients `ids`, and their memory afterwards."""
    objective = Objective(module or MODEL.build((16,), 4), engine=engine)
    clients = Clients(np.asarray(ids), np.asarray(ids), data.train, objective)
    task = task or Task(objective.initial, version, seed=1)
    memory = memory or {"steps_done": torch.zeros(len(ids), dtype=torch.int64)}
    return local.train(task, memory, clients, corrections), memory


def by_torch(local, data, k, lr, steps, done=0, version=0):
    """The update of one client by `torch.optim.SGD` on the same minibatches."""
    module = MODEL.build((16,), 4)
    start = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    optimizer = torch.optim.SGD(module.parameters(), lr, momentum=local.momentum, weight_decay=local.weight_decay)
    one = np.array([k])
    planned = plan(
        offsets=data.train.offsets[one],
        sizes=data.train.sizes[one],
        clients=one,
        versions=np.array([version]),
        done=np.array([done]),
        num_steps=np.array([steps]),
        batch_size=local.batch_size,
        sampling=local.sampling,
        drop_last=local.epochs is None if local.drop_last is None else local.drop_last,
        seed=1,
    )
    losses = []
    for rows, n in zip(planned.examples[0], planned.counts[0], strict=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(data.train.x[rows[:n]]), data.train.y[rows[:n]])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]) - start, np.mean(losses)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"momentum": 0.5, "weight_decay": 0.2, "sampling": "fresh", "batch_size": 8},
        {"steps": None, "epochs": 3, "momentum": 0.9},
        {"steps": None, "epochs": 1, "drop_last": True},
        {"sampling": "replacement", "momentum": 0.3},
    ],
    ids=str,
)
def test_equals_torchs_sgd(tiny, options, engine):
    local = Sgd(**{"lr": 0.1, "steps": 4, **options})
    ids = [7, 1, 0]  # 64, 5 and 40 examples
    report, _ = trained(local, tiny, ids, engine=engine)
    for row, k in enumerate(ids):
        delta, loss = by_torch(local, tiny, k, 0.1, int(report.num_steps[row]))
        torch.testing.assert_close(report.delta[row], delta, rtol=1e-5, atol=1e-6)
        assert float(report.seen["loss"][row]) == pytest.approx(loss, rel=1e-5)


def test_report_has_client_version_examples_and_steps(tiny):
    report, memory = trained(Sgd(steps=3), tiny, [2, 5], version=9)
    assert list(report.client) == [2, 5]
    assert list(report.version) == [9, 9]
    assert list(report.num_examples) == [16, 20]
    assert list(report.num_steps) == [3, 3]
    assert report.delta.shape == (2, 16 * 7 + 7 + 7 * 4 + 4)
    assert memory["steps_done"].tolist() == [3, 3]


def test_epochs_give_large_clients_more_steps(tiny):
    local = Sgd(steps=None, epochs=2, batch_size=16)
    report, memory = trained(local, tiny, [0, 1, 7])  # 40, 5, 64 examples
    assert list(report.num_steps) == [6, 2, 8]
    assert memory["steps_done"].tolist() == [6, 2, 8]
    dropping, _ = trained(Sgd(steps=None, epochs=2, batch_size=16, drop_last=True), tiny, [0, 1, 7])
    assert list(dropping.num_steps) == [4, 2, 8]


def test_next_round_continues_the_pass(tiny):
    memory = {"steps_done": torch.tensor([5])}
    report, memory = trained(Sgd(lr=0.1, steps=2), tiny, [7], memory=memory, version=3)
    torch.testing.assert_close(report.delta[0], by_torch(Sgd(), tiny, 7, 0.1, 2, done=5)[0], rtol=1e-5, atol=1e-6)
    assert memory["steps_done"].tolist() == [7]
    assert Sgd(sampling="fresh").memory(10, torch.float32) == {}
    assert Sgd().memory(10, torch.float32) == {"steps_done": ((), torch.int64)}


@pytest.mark.parametrize("work", [{"steps": 2}, {"steps": None, "epochs": 1}], ids=["equal", "unequal"])
def test_lanes_may_start_from_different_versions(tiny, work):
    """In a buffer, each lane has its own parameters and step size, for any number of steps."""
    local = Sgd(lr=Halving(0.4, start=3, every=100), sampling="fresh", **work)
    starts = torch.stack([MODEL_START, MODEL_START + 0.1, MODEL_START - 0.1])
    versions = np.array([4, 0, 2])
    together, _ = trained(local, tiny, [3, 7, 0], task=Task(starts, versions, seed=1))
    for row, k in enumerate([3, 7, 0]):
        task = Task(starts[row], int(versions[row]), seed=1)
        alone, _ = trained(local, tiny, [k], task=task)
        assert torch.equal(alone.delta[0], together.delta[row])
    assert list(together.version) == [4, 0, 2]


def test_transforms_have_a_key_per_minibatch_and_client(tiny):
    seen = []

    class Seen(Transform):
        random = True

        def apply(self, x, keys):
            seen.append(keys)
            return x

    objective = Objective(MODEL.build((16,), 4), engine="one_by_one")
    clients = Clients(np.array([0, 7]), np.array([0, 7]), tiny.train, objective, (Seen(),))
    memory = {"steps_done": torch.zeros(2, dtype=torch.int64)}
    Sgd(steps=2, batch_size=4).train(Task(objective.initial, 3, seed=1), memory, clients, ())
    keys = torch.cat([keys.flatten() for keys in seen])
    assert len(keys) == len(keys.unique()) == 16


def test_task_is_not_modified(tiny):
    start = MODEL_START.clone()
    trained(Sgd(momentum=0.9), tiny, [0, 1], task=Task(start, 0, seed=1))
    assert torch.equal(start, MODEL_START)


def test_user_module_with_residual_and_frozen_layer_trains(tiny):
    """An ordinary class, as written for one machine."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.mix, self.out = nn.Linear(16, 8), nn.Linear(8, 8), nn.Linear(8, 4)
            self.embed.requires_grad_(False)

        def forward(self, x):
            h = torch.tanh(self.embed(x))
            return self.out(h + torch.nn.functional.gelu(self.mix(h)))

    module = Net()
    report, _ = trained(Sgd(lr=0.2, steps=1, batch_size=64), tiny, [7], module=module)
    x, y = tiny.train.client(7)
    nn.functional.cross_entropy(module(x), y).backward()
    moved = torch.cat([-0.2 * p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])
    assert report.delta.shape == (1, 8 * 8 + 8 + 8 * 4 + 4)  # the frozen layer stays
    torch.testing.assert_close(report.delta[0], moved, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "lr: got 0.0, needed a finite number > 0"),
        ({"lr": "0.1"}, "lr: got '0.1'"),
        ({"steps": 0}, "steps: got 0, needed a whole number >= 1"),
        ({"steps": None}, r"got steps=None and epochs=None, .* write Sgd\(steps=None, epochs=1\)"),
        ({"epochs": 2}, r"steps and epochs: got steps=5 and epochs=2, needed one of them"),
        ({"steps": None, "epochs": 0.5}, "epochs: got 0.5, needed a whole number"),
        ({"steps": None, "epochs": TimeBudget(30)}, "epochs: got TimeBudget.* a number of local steps"),
        ({"steps": None, "epochs": ShareOfWork(TimeBudget(30))}, r"epochs: got Share.* Write steps=TimeBudget\(...\)"),
        ({"batch_size": 0}, "batch_size: got 0"),
        ({"lr": 1e39}, r"lr: got 1e\+39, needed a number of at most 3.4e\+38, the largest in single precision"),
        ({"momentum": 1.0}, "momentum: got 1.0, needed a number >= 0 and < 1"),
        ({"momentum": -0.1}, "momentum: got -0.1"),
        ({"momentum": "0.9"}, "momentum: got '0.9'"),
        ({"weight_decay": -1.0}, "weight_decay: got -1.0"),
        ({"weight_decay": 1e308}, r"weight_decay: got 1e\+308, needed a number <= 3.403e\+38"),
        ({"sampling": "pas"}, "unknown value of sampling 'pas': did you mean 'pass'"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Sgd(**options)


MODEL_START = Objective(MODEL.build((16,), 4)).initial
