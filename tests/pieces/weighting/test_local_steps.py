from dataclasses import replace

import numpy as np
import torch
from tests.tiny import federation, report

from turnout.pieces.weighting import DivideByLocalSteps

KNOWN = federation(8)


def applied(weights, steps):
    reports = replace(report(range(len(steps))), num_steps=np.array(steps))
    return DivideByLocalSteps().apply(torch.tensor(weights).double(), reports, 0, {}, KNOWN)[0].tolist()


def test_by_hand():
    """p = (1/4, 3/4), tau_eff = 1/4 * 2 + 3/4 * 6 = 5."""
    assert applied([10.0, 30.0], [2, 6]) == [0.25 * 5 / 2, 0.75 * 5 / 6]


def test_equal_work_divides_by_the_sum():
    assert applied([1.0, 1.0, 2.0], [7, 7, 7]) == [0.25, 0.25, 0.5]
    assert applied([3.0], [5]) == [1.0]


def test_who_did_nothing_counts_nothing_and_divides_nothing_by_zero():
    assert applied([1.0, 1.0], [0, 4]) == [0.0, 0.5 * 2 / 4]
    assert applied([1.0, 1.0], [0, 0]) == [0.0, 0.0]


def test_no_weight_stays_no_weight():
    assert applied([0.0, 0.0], [1, 2]) == [0.0, 0.0]
    assert applied([0.0, 2.0], [1, 2]) == [0.0, 1.0]


def test_the_step_is_that_of_the_mean_amount_of_work():
    """Equal gradients at every step: the model moves by tau_eff of them, whoever did how many."""
    rng = np.random.default_rng(0)
    steps, n = rng.integers(1, 20, 6), rng.integers(1, 50, 6)
    weights = np.array(applied(n.tolist(), steps.tolist()))
    np.testing.assert_allclose(weights @ steps, n @ steps / n.sum())
