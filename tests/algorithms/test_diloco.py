"""DiLoCo."""

from dataclasses import replace

import pytest
import torch

import turnout as to
from turnout.pieces.local import Solver

from ..tiny import classification

LOCAL = to.AdamW(lr=1e-3, steps=4, weight_decay=0.1, keep_state=True)


def after(algorithm, rounds, clients=1, **options):
    data = classification(sizes=(64,) * clients, dtype=torch.float32)
    model = to.models.Mlp(hidden=(7,))
    return to.Experiment(data, model=model, algorithm=algorithm, rounds=rounds, seed=1, **options).run()


def vector(result):
    return torch.cat([value.reshape(-1) for value in result.state_dict().values()])


@pytest.mark.parametrize(("lr", "is_exact"), [(1e-6, True), (1e-2, False)])
def test_one_worker_with_plain_outer_steps_is_adamw(lr, is_exact):
    """Three rounds of 4 steps are 12 steps: the worker keeps its moments, and its minibatches go on where they stopped.

    The server adds a difference, ``x + (y - x)``. That is y, bit for bit, where y is within a factor of 2 of x, as all
    parameters are after small steps; elsewhere it is within a rounding of x.
    """
    outer = to.diloco(replace(LOCAL, lr=lr), server_lr=1.0, beta=0.0)
    apart, whole = vector(after(outer, 3)), vector(after(to.fedavg(replace(LOCAL, lr=lr, steps=12)), 1))
    assert torch.equal(apart, whole) or not is_exact
    torch.testing.assert_close(apart, whole, rtol=0, atol=1e-6)


def test_workers_without_state_start_anew():
    fresh = to.AdamW(lr=1e-3, steps=4, weight_decay=0.1)
    kept, anew = (vector(after(to.diloco(local, server_lr=1.0, beta=0.0), 3)) for local in (LOCAL, fresh))
    assert (kept - anew).abs().max() > 1e-4


def test_workers_can_be_weighted_by_examples():
    plain, weighted = to.diloco(), to.diloco(data_weighted=True)
    assert [type(piece).__name__ for piece in plain.weighting] == ["DivideByParticipants"]
    assert [type(piece).__name__ for piece in weighted.weighting] == ["ByExamples", "DivideBySum"]
    assert isinstance(plain.local, Solver)
    assert plain.local.keep_state


def test_delayed_momentum_works_with_late_reports():
    population = to.Population(to.availability.Everyone(), speed=to.speed.Speed(compute=to.delay.Uniform(1, 4)))
    late = to.diloco(LOCAL, every=3)
    result = after(late, 12, clients=3, population=population, pace=to.pace.Buffered(buffer_size=1))
    assert result.summary()["rounds"] == 12
