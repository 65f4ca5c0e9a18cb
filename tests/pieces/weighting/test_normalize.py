"""Divisors at the end of a chain of weightings."""

import numpy as np
import pytest
import torch
from tests.tiny import federation, report

from turnout.base import KnownInAdvance
from turnout.pieces.weighting import ByExamples, DivideByAbsoluteSum, DivideByClients, DivideByParticipants, DivideBySum

KNOWN = federation(8)
WEIGHTS = torch.tensor([1.0, 2.0, 5.0]).double()
REPORT = report([0, 3, 4], sizes=[10, 20, 70])


def applied(piece, weights=WEIGHTS, one=REPORT):
    return piece.apply(weights, one, 0, {}, KNOWN)[0].tolist()


def test_divisors_equal_hand_computed_values():
    assert applied(DivideByClients()) == [1 / 8, 2 / 8, 5 / 8]
    assert applied(DivideByParticipants()) == [1 / 3, 2 / 3, 5 / 3]
    assert applied(DivideBySum()) == [1 / 8, 2 / 8, 5 / 8]
    assert applied(DivideBySum(), 2 * WEIGHTS) == [1 / 8, 2 / 8, 5 / 8]


def test_empty_cohort_and_zero_sum_give_zero():
    for piece in (DivideByClients(), DivideByParticipants(), DivideBySum()):
        assert applied(piece, WEIGHTS[:0], report([])) == []
    assert applied(DivideBySum(), 0 * WEIGHTS) == [0.0, 0.0, 0.0]


def test_division_by_the_absolute_sum_keeps_signs():
    weights = torch.tensor([3.0, -4.0, 1.0]).double()
    assert applied(DivideByAbsoluteSum(), weights) == [3 / 8, -4 / 8, 1 / 8]
    assert applied(DivideByAbsoluteSum(), -weights) == [-3 / 8, 4 / 8, -1 / 8]
    assert applied(DivideByAbsoluteSum(), weights[1:2]) == [-1.0]
    assert applied(DivideByAbsoluteSum(), 0 * weights) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-200, 1e200, 1e308])
def test_division_by_the_absolute_sum_at_float64_extremes(scale):
    """Inner products of gradients can have any magnitude."""
    found = applied(DivideByAbsoluteSum(), torch.tensor([1.0, -1.0, 0.0, 1.0], dtype=torch.float64) * scale)
    np.testing.assert_allclose(found, [1 / 3, -1 / 3, 0.0, 1 / 3], rtol=1e-9)


def test_example_weights_are_multiplied():
    assert applied(ByExamples()) == [10.0, 40.0, 350.0]
    assert not isinstance(ByExamples(), KnownInAdvance)  # only the report knows how many it has
