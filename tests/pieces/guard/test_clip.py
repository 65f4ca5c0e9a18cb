"""Clipping bounds the norm of an update and changes nothing else."""

from dataclasses import replace
from typing import cast

import pytest
import torch
from tests.laws.recipes import LOCAL, experiment, trained
from tests.tiny import federation, report

from turnout import ConfigurationError, Sgd, average_participating, fedau
from turnout.core.types import Task
from turnout.engine.cohort import Clients
from turnout.pieces.aggregation import PrivateSum
from turnout.pieces.guard import Clip
from turnout.simulation import Simulation

NOBODY = cast("Clients", None)
TASK = Task(torch.zeros(5, dtype=torch.float64), version=0, seed=0)


def test_long_updates_are_shortened_and_short_ones_unchanged():
    delta = torch.tensor([[3.0, 4.0, 0, 0, 0], [0.3, 0.4, 0, 0, 0], [0.0] * 5], dtype=torch.float64)
    clipped = Clip(1.0).apply(report([0, 1, 2], delta), TASK, {}, NOBODY).delta
    torch.testing.assert_close(clipped[0], torch.tensor([0.6, 0.8, 0, 0, 0], dtype=torch.float64))
    assert torch.equal(clipped[1:], delta[1:])


@pytest.mark.parametrize(
    ("size", "dtype"), [(3e38, torch.float32), (1e30, torch.float32), (1e155, torch.float64), (1e308, torch.float64)]
)
@pytest.mark.parametrize("norm", [1e-3, 1.0, 50.0])
def test_huge_updates_keep_their_direction(size, dtype, norm):
    delta = torch.tensor([[0.6, 0, -0.8, 0, 0]], dtype=dtype) * size
    expected = torch.tensor([[0.6, 0, -0.8, 0, 0]], dtype=dtype) * norm
    for change in (
        lambda one: Clip(norm).apply(one, TASK, {}, NOBODY).delta,
        lambda one: one.updates.shortened(norm).rows,
    ):
        torch.testing.assert_close(change(report([0], delta)), expected)
    private = PrivateSum(norm=norm, noise_multiplier=0.0, cohort=1)
    known = federation(8, 5, dtype=dtype)
    found, _ = private.apply(torch.ones(1, dtype=torch.float64), report([0], delta), private.init(known), known)
    torch.testing.assert_close(found, expected[0])


def test_non_finite_updates_are_left_for_the_server_to_drop():
    delta = torch.full((1, 5), float("nan"), dtype=torch.float64)
    assert not Clip(1.0).apply(report([0], delta), TASK, {}, NOBODY).finite().any()


def test_large_norm_changes_no_bit_and_a_small_one_bounds_every_step():
    def with_clip(*pieces: Clip) -> Simulation:
        run = experiment("average_participating")
        return trained(replace(run, algorithm=average_participating(LOCAL, also=pieces)))

    assert torch.equal(with_clip().state.params, with_clip(Clip(1e6)).state.params)
    norms = with_clip(Clip(1e-3)).history.column("update_norm")[1]
    assert len(norms)
    assert (norms <= 1e-3 * (1 + 1e-5)).all()


def test_clip_combines_with_a_recipe():
    assert fedau(Sgd(), also=(Clip(2.0),)).guard == (Clip(2.0),)


@pytest.mark.parametrize("norm", [0, -1.0, float("nan"), float("inf"), True])
def test_norm_that_bounds_nothing_is_refused(norm):
    with pytest.raises(ConfigurationError, match=r"norm: got .* needed a finite number > 0"):
        Clip(norm)
