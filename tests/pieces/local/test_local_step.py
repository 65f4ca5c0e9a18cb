"""Traced local steps with corrections."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from tests.logs import logged

import turnout as to
from turnout.base import Correction
from turnout.engine import objective
from turnout.engine.compile import compiled as replay
from turnout.pieces.local.work import UniformWork
from turnout.simulation import Simulation

plain: dict[str, Any] = {"lr": 0.1, "batch_size": 4}


def simulation(local, also=()):
    data = to.data.digits().split(to.partition.Dirichlet(alpha=0.5), num_clients=8)
    algorithm = to.average_participating(local, also=(to.selection.Uniform(5), *also))
    model = to.models.Mlp(hidden=(9,))
    return Simulation(to.Experiment(data=data, model=model, algorithm=algorithm, rounds=3, engine="vectorized"))


def model_after(run):
    for _ in range(3):
        run.round()
    return run.state.params


@pytest.mark.parametrize(
    ("local", "also"),
    [
        (to.Sgd(steps=3, **plain), ()),
        (to.Sgd(lr=to.schedule.Halving(initial=0.2, start=1, every=1), steps=3, batch_size=5), ()),
        (to.Sgd(steps=3, momentum=0.5, weight_decay=0.01, **plain), ()),
        (to.Sgd(steps=None, epochs=UniformWork(1, 2), lr=0.1, batch_size=8), (to.local.Prox(mu=0.5),)),
        (to.Sgd(steps=2, **plain), (to.local.Scaffold(),)),
        (to.local.Meta(steps=3, **plain), ()),
        (to.local.Meta(steps=2, hessian="difference", **plain), ()),
    ],
)
def test_traced_steps_equal_python_steps(monkeypatch, by_python, local, also):
    expected = by_python(model_after, simulation(local, also))
    monkeypatch.setattr(replay, "_CALLS", 0)
    assert torch.equal(model_after(simulation(local, also)), expected)


def test_stateless_correction_is_replayed_with_the_step(monkeypatch):
    monkeypatch.setattr(replay, "_CALLS", 0)
    counted = []

    class Counting(to.local.Prox):
        def correct(self, gradient, params, start):
            counted.append(len(gradient))
            return super().correct(gradient, params, start)

    run = simulation(to.Sgd(steps=3, **plain), (Counting(mu=0.1),))
    run.round()
    once = len(counted)
    run.round()
    assert len(counted) == once > 0


CALLS: list[int] = []


@dataclass(frozen=True)
class Growing(Correction):
    """Scale the i-th step of a round by i."""

    kind: Any

    def begin(self, task, memory, clients, lanes):
        del task, memory, clients, lanes
        return self.kind(torch.zeros(()))

    def correct(self, gradient, params, start):
        del params, start
        return gradient


@dataclass(frozen=True)
class OfTensors(Correction):
    step: torch.Tensor

    def correct(self, gradient, params, start):
        del params, start
        CALLS.append(len(gradient))
        return gradient * self.step.add_(1)


@dataclass(frozen=True)
class Checked(OfTensors):
    def __post_init__(self):
        assert self.step.dim() == 0


@dataclass(frozen=True)
class Unhashable(OfTensors):
    notes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Tuned(OfTensors):
    number: float = field(default_factory=lambda: len(CALLS) + 1.0)


class Free(Correction):
    def __init__(self, step):
        self.step = step

    def correct(self, gradient, params, start):
        del params, start
        CALLS.append(len(gradient))
        self.step = self.step + 1
        return gradient * self.step


@pytest.mark.parametrize(
    ("kind", "is_replayed"), [(OfTensors, True), (Checked, False), (Unhashable, False), (Free, False)]
)
def test_correction_is_replayed_if_only_its_tensors_change(monkeypatch, by_python, kind, is_replayed):
    local, also = to.Sgd(steps=4, **plain), (Growing(kind),)
    expected = by_python(model_after, simulation(local, also))
    monkeypatch.setattr(replay, "_CALLS", 0)
    run = simulation(local, also)
    run.round()
    once = len(CALLS)
    run.round()
    assert (len(CALLS) == once) is is_replayed
    run.round()
    assert torch.equal(run.state.params, expected)


def test_correction_that_differs_in_every_round_causes_a_warning(monkeypatch):
    monkeypatch.setattr(objective, "_MOST_COMPILED", 2)
    run = simulation(to.Sgd(steps=2, **plain), (Growing(Tuned),))
    run.round()
    with logged(r"more than 2 kinds of steps .* hold what differs .* in tensors"):
        model_after(run)
    assert len(run.objective._compiled) == 2
