from typing import Any

import pytest
import torch

import turnout as to
from turnout.core import replay
from turnout.local.work import UniformWork
from turnout.simulation import Simulation

plain: dict[str, Any] = {"lr": 0.1, "batch_size": 4}


def simulation(local, also=()):
    data = to.data.digits().split(to.Dirichlet(alpha=0.5), num_clients=8)
    algorithm = to.average_participating(local, also=(to.Uniform(5), *also))
    model = to.models.Mlp(hidden=(9,))
    return Simulation(to.Experiment(data=data, model=model, algorithm=algorithm, rounds=3, engine="vectorised"))


def model_after(run):
    for _ in range(3):
        run.round()
    return run.state.params


@pytest.mark.parametrize(
    ("local", "also"),
    [
        (to.Sgd(steps=3, **plain), ()),
        (to.Sgd(lr=to.Halving(initial=0.2, start=1, every=1), steps=3, batch_size=5), ()),
        (to.Sgd(steps=3, momentum=0.5, weight_decay=0.01, **plain), ()),
        (to.Sgd(steps=None, epochs=UniformWork(1, 3), **plain), (to.Prox(mu=0.5),)),
        (to.Sgd(steps=2, **plain), (to.Scaffold(),)),
        (to.Meta(steps=3, **plain), ()),
        (to.Meta(steps=2, hessian="difference", **plain), ()),
    ],
)
def test_steps_without_their_python_are_the_same_steps(monkeypatch, local, also):
    monkeypatch.setattr(replay, "_MOST", 0)
    by_python = model_after(simulation(local, also))
    monkeypatch.setattr(replay, "_MOST", 100)
    monkeypatch.setattr(replay, "_COST", -1.0)
    assert torch.equal(model_after(simulation(local, also)), by_python)


def test_a_correction_without_memory_of_a_round_is_replayed_with_the_step(monkeypatch):
    monkeypatch.setattr(replay, "_COST", -1.0)
    counted = []

    class Counting(to.Prox):
        def correct(self, gradient, params, start):
            counted.append(len(gradient))
            return super().correct(gradient, params, start)

    run = simulation(to.Sgd(steps=3, **plain), (Counting(mu=0.1),))
    run.round()
    once = len(counted)
    run.round()
    assert len(counted) == once > 0
