"""Measurements of the received model: loss, gradient, norm, inexactness."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from turnout import Sgd, compose, models
from turnout.base.client_step import client_step
from turnout.core.types import Task
from turnout.engine.choice import Engine
from turnout.engine.cohort import Clients, Start
from turnout.engine.objective import Objective
from turnout.pieces.local import GradientNorm, Inexactness, Prox, StartGradient, StartLoss
from turnout.pieces.local.measurements import _norms
from turnout.pieces.selection import ByAlignmentAndInexactness

ALL = (StartLoss(), StartGradient(), GradientNorm(), Inexactness())
MODEL = models.Mlp(hidden=(7,))


def clients_of(data, ids, engine: Engine = "vectorized", model=MODEL):
    ids = np.asarray(ids)
    return Clients(ids, ids, data.train, Objective(model.build((16,), 4), engine=engine))


def stepped(data, ids, *pieces, local=None, phase="train", version=0, **options):
    clients = clients_of(data, ids, **options)
    memory = {"steps_done": torch.zeros(len(ids), dtype=torch.int64)}
    task = Task(clients.objective.initial, version, seed=2, phase=phase)
    return client_step(compose(local or Sgd(), *pieces), task, memory, clients)[0]


def gradient_of(module, x, y):
    module.zero_grad()
    nn.functional.cross_entropy(module(x), y).backward()
    return torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_measurements_equal_loss_gradient_and_norm(tiny, engine):
    ids = [7, 1, 0]
    seen = stepped(tiny, ids, *ALL, engine=engine).seen
    for row, k in enumerate(ids):
        x, y = tiny.train.client(k)
        module = MODEL.build((16,), 4)
        gradient = gradient_of(module, x, y)
        assert float(seen["start_loss"][row]) == pytest.approx(
            float(nn.functional.cross_entropy(module(x), y).detach()), rel=1e-5
        )
        torch.testing.assert_close(seen["start_gradient"][row], gradient, rtol=1e-4, atol=1e-6)
        assert float(seen["start_gradient_norm"][row]) == pytest.approx(float(gradient.norm()), rel=1e-5)


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_inexactness_is_the_ratio_of_local_gradient_norms(tiny, mu):
    """At the end of training relative to its start, where the proximal term has no gradient."""
    ids, pieces = [7, 1, 0], (Prox(mu),) if mu else ()
    report = stepped(tiny, ids, Inexactness(), *pieces, local=Sgd(lr=0.3, steps=6))
    for row, k in enumerate(ids):
        x, y = tiny.train.client(k)
        module = MODEL.build((16,), 4)
        before = gradient_of(module, x, y)
        end = torch.cat([p.detach().reshape(-1) for p in module.parameters()]) + report.delta[row]
        nn.utils.vector_to_parameters(end, module.parameters())
        after = gradient_of(module, x, y) + mu * report.delta[row]
        assert float(report.seen["inexactness"][row]) == pytest.approx(float(after.norm() / before.norm()), rel=1e-4)
        assert 0 < report.seen["inexactness"][row] < 1.5


def test_measurements_do_not_change_training(tiny):
    plain, measured = stepped(tiny, [0, 1, 7]), stepped(tiny, [0, 1, 7], *ALL)
    assert torch.equal(plain.updates.gathered(), measured.updates.gathered())
    assert torch.equal(plain.seen["loss"], measured.seen["loss"])
    assert set(measured.seen) - set(plain.seen) == {name for piece in ALL for name in piece.gives}


def test_measuring_phase_sends_only_measurements(tiny):
    measured = stepped(tiny, [0, 1, 7], ByAlignmentAndInexactness(), phase="measure")
    trained = stepped(tiny, [0, 1, 7], StartGradient(), Inexactness())
    assert measured.delta.shape == (3, 0)
    assert measured.num_steps.tolist() == [0, 0, 0]
    assert measured.num_examples.tolist() == trained.num_examples.tolist()
    assert set(measured.seen) == {"start_gradient", "inexactness"}
    for name, value in measured.seen.items():
        assert torch.equal(value, trained.seen[name])


def test_measurements_do_not_depend_on_dropout_or_round(tiny):
    model, local = models.Mlp(hidden=(7,), dropout=0.5), Sgd(sampling="fresh")
    one, other = (stepped(tiny, [0, 7], *ALL, model=model, local=local, version=v) for v in (0, 9))
    for name in ("start_loss", "start_gradient", "start_gradient_norm"):
        assert torch.equal(one.seen[name], other.seen[name])
    assert not torch.equal(one.updates.gathered(), other.updates.gathered())


def test_squares_of_small_gradients_do_not_underflow():
    rows = torch.tensor([[3e-30, 4e-30], [0.0, 0.0], [3e30, 4e30]])
    np.testing.assert_allclose(_norms(rows).numpy(), [5e-30, 0.0, 5e30], rtol=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        ([3.0, 4.0], [0.3, 0.4], 0.1),
        ([0.0, 0.0], [1.0, 0.0], 0.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([3.0, 4.0], [0.0, 0.0], 0.0),
        ([1e-25, 0.0], [2e-25, 0.0], 2.0),
        ([torch.nan, 0.0], [1.0, 0.0], torch.nan),  # to be dropped, and not the best of all clients
        ([1.0, 0.0], [torch.nan, 0.0], torch.nan),
        ([1.0, 0.0], [torch.inf, 0.0], torch.inf),
    ],
)
def test_inexactness_of_zero_and_infinite_gradients(before, after, ratio, monkeypatch):
    monkeypatch.setattr("turnout.pieces.local.measurements.full_gradient", lambda *_: (None, torch.tensor([after])))
    start = SimpleNamespace(params=torch.zeros(2), clients=None, gradient=torch.tensor([before]))
    found = Inexactness().measure(start, torch.ones(1, 2), ())["inexactness"]  # type: ignore[arg-type]
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), [ratio], rtol=1e-6)
    clipped = Inexactness(clip=True).measure(start, torch.ones(1, 2), ())["inexactness"]  # type: ignore[arg-type]
    np.testing.assert_allclose(clipped.numpy(), [min(ratio, 1.0) if ratio == ratio else ratio], rtol=1e-6)


def test_lanes_may_start_from_different_models(tiny):
    """As in a buffer of reports."""
    clients = clients_of(tiny, [3, 7, 0])
    initial = clients.objective.initial
    starts = torch.stack([initial, 1.5 * initial, initial - 0.1])
    local, algorithm = Sgd(sampling="fresh"), compose(Sgd(sampling="fresh"), *ALL)
    assert algorithm.local == local
    together, _ = client_step(algorithm, Task(starts, np.array([4, 0, 2]), seed=1), {}, clients)
    for row, (k, version) in enumerate([(3, 4), (7, 0), (0, 2)]):
        alone, _ = client_step(algorithm, Task(starts[row], version, seed=1), {}, clients_of(tiny, [k]))
        for name, value in alone.seen.items():
            torch.testing.assert_close(value[0], together.seen[name][row], rtol=1e-6, atol=1e-7)


def test_shared_quantities_are_computed_once(tiny, monkeypatch):
    calls = []
    monkeypatch.setattr(
        "turnout.engine.cohort.full_gradient", lambda *_: calls.append(1) or (torch.zeros(1), torch.ones(1, 3))
    )
    start = Start(Task(torch.zeros(3), 0, seed=0), clients_of(tiny, [0]))
    assert start.known is None
    for _ in range(3):
        assert start.gradient.tolist() == [[1.0] * 3]
        assert start.loss.tolist() == [0.0]
    assert calls == [1]
    assert start.known is not None
