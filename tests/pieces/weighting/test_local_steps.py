"""FedNova's weights by local steps."""

from dataclasses import replace

import numpy as np
import torch
from tests.tiny import federation, report

from turnout.pieces.weighting import DivideByLocalSteps

KNOWN = federation(8)


def applied(weights, steps):
    reports = replace(report(range(len(steps))), num_steps=np.array(steps))
    return DivideByLocalSteps().apply(torch.tensor(weights).double(), reports, 0, {}, KNOWN)[0].tolist()


def test_equals_a_hand_computed_example():
    """p = (1/4, 3/4), tau_eff = 1/4 * 2 + 3/4 * 6 = 5."""
    assert applied([10.0, 30.0], [2, 6]) == [0.25 * 5 / 2, 0.75 * 5 / 6]


def test_equal_steps_give_weights_divided_by_their_sum():
    assert applied([1.0, 1.0, 2.0], [7, 7, 7]) == [0.25, 0.25, 0.5]
    assert applied([3.0], [5]) == [1.0]


def test_client_without_steps_has_zero_weight():
    assert applied([1.0, 1.0], [0, 4]) == [0.0, 0.5 * 2 / 4]
    assert applied([1.0, 1.0], [0, 0]) == [0.0, 0.0]


def test_zero_weight_stays_zero():
    assert applied([0.0, 0.0], [1, 2]) == [0.0, 0.0]
    assert applied([0.0, 2.0], [1, 2]) == [0.0, 1.0]


def test_step_is_that_of_the_mean_number_of_steps():
    """With equal gradients at every step, the model moves by tau_eff of them, for any distribution of steps."""
    rng = np.random.default_rng(0)
    steps, n = rng.integers(1, 20, 6), rng.integers(1, 50, 6)
    weights = np.array(applied(n.tolist(), steps.tolist()))
    np.testing.assert_allclose(weights @ steps, n @ steps / n.sum())
