"""If the first minibatch is all of a client's data, the measured gradient is reused for the first step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.tiny import classification

from turnout import Sgd, compose, models
from turnout.base.client_step import client_step
from turnout.core.random import uniform
from turnout.core.types import Task
from turnout.data.transforms import Transform
from turnout.engine.choice import Engine
from turnout.engine.cohort import Clients
from turnout.engine.objective import Objective
from turnout.engine.padding import LaneSizes
from turnout.pieces.local import GradientNorm, Prox, StartGradient, StartLoss

SIZES = (40, 5, 16, 33, 48, 20, 9, 64)


@dataclass(frozen=True)
class Noise(Transform):
    """Adds a random number to each sample, in training."""

    random: ClassVar[bool] = True

    def apply(self, x, keys):
        assert keys is not None
        return x + uniform(keys).to(x.dtype)[:, None]


def run(local, *pieces, ids: Sequence[int] = range(8), engine: Engine = "vectorized", done=0, **options):
    """The report, and for each gradient of a client that was computed whether it was one of training."""
    numbers = np.asarray(ids)
    objective = Objective(options.get("model", models.Mlp(hidden=(7,))).build((16,), 4), engine=engine)
    objective.lane_sizes = LaneSizes(8, cheap=0)  # without idle lanes, which would be counted
    data = classification(options.get("sizes", SIZES)).train
    clients = Clients(numbers, numbers, data, objective, options.get("transforms", ()))
    memory = {"steps_done": torch.full((len(ids),), done)} if local.sampling == "pass" else {}
    calls: list[bool] = []
    gradient = objective.gradient

    def counted(*arguments, **options):
        calls.extend([options.get("training", True)] * len(arguments[0]))
        return gradient(*arguments, **options)

    objective.gradient = counted  # type: ignore[method-assign]
    task = Task(objective.initial, 0, seed=1)
    report, _ = client_step(compose(local, *pieces), task, memory, clients)
    return report, calls


def assert_equal_but_for_rounding(one, other):
    torch.testing.assert_close(one.delta, other.delta, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(one.seen["loss"], other.seen["loss"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
@pytest.mark.parametrize("measured", [StartGradient(), GradientNorm()])
@pytest.mark.parametrize(
    "options",
    [{"steps": 1}, {"steps": 3}, {"steps": None, "epochs": 2}, {"sampling": "fresh"},
     {"momentum": 0.8, "weight_decay": 0.3, "steps": 3}],
    ids=str,
)  # fmt: skip
def test_one_gradient_call_is_saved_with_equal_results(options, measured, engine):
    local = Sgd(**{"lr": 0.2, "batch_size": 64, **options})
    plain, needed = run(local, Prox(0.3), engine=engine)
    shared, calls = run(local, Prox(0.3), measured, engine=engine)
    assert_equal_but_for_rounding(plain, shared)
    assert calls == [False] * 8 + [True] * (len(needed) - 8)  # the measurement is the first step


def test_saved_in_later_rounds():
    """Every pass is one minibatch, so each round begins with all data."""
    local = Sgd(lr=0.2, steps=2, batch_size=64)
    plain, _ = run(local, done=5)
    shared, calls = run(local, StartGradient(), done=5)
    assert_equal_but_for_rounding(plain, shared)
    assert calls == [False] * 8 + [True] * 8


@pytest.mark.parametrize(
    ("local", "options"),
    [
        (Sgd(batch_size=63), {}),  # one client holds 64
        (Sgd(batch_size=64, sampling="replacement"), {}),
        (Sgd(batch_size=64), {"model": models.Mlp(hidden=(7,), dropout=0.3)}),
        (Sgd(batch_size=64), {"transforms": (Noise(),)}),
    ],
    ids=["minibatches", "with replacement", "dropout", "augmentation"],
)
def test_different_first_step_is_computed(local, options):
    plain, needed = run(local, **options)
    measured, calls = run(local, StartGradient(), **options)
    assert torch.equal(plain.updates.gathered(), measured.updates.gathered())
    assert sum(calls) == len(needed)


def test_measured_loss_has_no_gradient_to_reuse():
    local = Sgd(batch_size=64, steps=2)
    plain, needed = run(local)
    measured, calls = run(local, StartLoss())
    assert torch.equal(plain.updates.gathered(), measured.updates.gathered())
    assert calls == needed == [True] * 16


def test_reuse_does_not_depend_on_the_cohort():
    """Clients of a federation with one larger client behave equally with and without it in the cohort."""
    local = Sgd(batch_size=48, lr=0.3, steps=2)  # enough for all but client 7
    together, _ = run(local, StartGradient())
    some, calls = run(local, StartGradient(), ids=[0, 1, 4])
    assert calls.count(True) == 2 * 3
    assert torch.equal(some.updates.gathered(), together.updates.gathered()[[0, 1, 4]])
    local = Sgd(batch_size=64, lr=0.3, steps=2)
    together, _ = run(local, StartGradient())
    some, calls = run(local, StartGradient(), ids=[0, 1, 4])
    assert calls.count(True) == 3
    assert torch.equal(some.updates.gathered(), together.updates.gathered()[[0, 1, 4]])


def test_gradients_over_several_blocks_are_reused():
    local, sizes = Sgd(batch_size=300, lr=0.3, steps=2), (300, 1, 129, 128)
    plain, _ = run(local, sizes=sizes, ids=range(4))
    shared, calls = run(local, StartGradient(), sizes=sizes, ids=range(4))
    assert_equal_but_for_rounding(plain, shared)
    assert calls.count(True) == 4
