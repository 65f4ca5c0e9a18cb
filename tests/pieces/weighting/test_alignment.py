"""FOLB's weights by inner products of gradients."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import federation, report

from turnout import ConfigurationError
from turnout.pieces.weighting import Alignment, DivideBySecondCohort, SignOfAlignment
from turnout.pieces.weighting.alignment import mean_gradient

KNOWN = federation(8, 2)


def of(gradient, gamma=None, **options):
    seen = {"start_gradient": torch.as_tensor(gradient, dtype=options.pop("dtype", torch.float64))}
    if gamma is not None:
        seen["inexactness"] = torch.tensor(gamma, dtype=torch.float64)
    return report(range(len(gradient)), torch.ones(len(gradient), 2), seen=seen, **options)


def applied(piece, reports, weights=None):
    weights = torch.ones(len(reports), dtype=torch.float64) if weights is None else torch.tensor(weights).double()
    found, state = piece.apply(weights, reports, 7, {"kept": torch.ones(1)}, KNOWN)
    assert state == {"kept": torch.ones(1)}
    assert found.dtype == torch.float64
    return found.tolist()


THREE = [[3.0, 1.0], [-1.0, 1.0], [1.0, -2.0]]  # their mean is (1, 0)


def test_alignment_equals_a_hand_computed_example():
    assert applied(Alignment(), of(THREE)) == [3.0, -1.0, 1.0]
    assert applied(Alignment(psi=2.0), of(THREE, gamma=[0.5, 0.0, 2.0])) == [2.0, -1.0, -3.0]
    assert applied(Alignment(psi=2.0), of([[2.0, 0.0], [0.0, 0.0]], gamma=[0.5, 1.0])) == [1.0, -2.0]


def test_earlier_weights_enter_the_mean_gradient_and_the_result():
    """Weights 1, 0 and 3: the mean is ((3, 1) + 3 (1, -2)) / 4 = (1.5, -1.25)."""
    assert applied(Alignment(), of(THREE), [1.0, 0.0, 3.0]) == [3.25, 0.0, 12.0]
    twice = applied(Alignment(), of(THREE), [2.0, 0.0, 6.0])
    assert twice == [6.5, 0.0, 24.0]
    assert applied(Alignment(), of(THREE), [0.0, 0.0, 0.0]) == [0.0, 0.0, 0.0]


def test_signs_equal_a_hand_computed_example():
    measured = of([[1.0, 0.0], [3.0, 0.0]])
    reports = replace(of([[2.0, 0.0], [-1e-30, 9.0], [0.0, 5.0]]), measured=measured)
    assert applied(SignOfAlignment(), reports) == [1.0, -1.0, 0.0]
    assert applied(SignOfAlignment(), reports, [5.0, 2.0, 1.0]) == [5.0, -2.0, 0.0]
    assert applied(SignOfAlignment(), replace(reports, measured=of(np.zeros((0, 2))))) == [0.0, 0.0, 0.0]
    assert applied(SignOfAlignment(), replace(reports, measured=of([[1.0, 0.0], [-1.0, 0.0]]))) == [0.0, 0.0, 0.0]


def test_two_cohorts_equal_a_hand_computed_example():
    """Three reports, and a second mean of (2, 0): divided by 3 times 4."""
    reports = replace(of(THREE), measured=of([[1.0, 1.0], [3.0, -1.0], [2.0, 0.0]]))
    assert applied(DivideBySecondCohort(), reports, [12.0, -24.0, 0.0]) == [1.0, -2.0, 0.0]
    for nothing in (of(np.zeros((0, 2))), of([[0.0, 0.0]]), of([[3.0, 1.0], [-1.0, -1.0], [-2.0, 0.0]])):
        assert applied(DivideBySecondCohort(), replace(reports, measured=nothing), [12.0, -24.0, 0.0]) == [
            0.0,
            0.0,
            0.0,
        ]


def test_two_cohorts_by_examples_equal_a_hand_computed_example():
    """10 + 20 + 70 examples at first; a second mean of (1 (5, 0) + 4 (0, 5)) / 5 = (1, 4), squared 17."""
    first, second = of(THREE, sizes=[10, 20, 70]), of([[5.0, 0.0], [0.0, 5.0]], sizes=[1, 4])
    found = applied(DivideBySecondCohort(by_examples=True), replace(first, measured=second), [1700.0, 0.0, -3400.0])
    assert found == [1.0, 0.0, -2.0]


def test_mean_gradient_is_weighted():
    assert mean_gradient(of(THREE), torch.ones(3).double()).tolist() == [1.0, 0.0]
    assert mean_gradient(of(THREE), torch.tensor([0.0, 1.0, 1.0]).double()).tolist() == [0.0, -0.5]
    assert mean_gradient(of(THREE), torch.zeros(3).double()).tolist() == [0.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=9), st.integers(-30, 30))
def test_canceling_float32_gradients_cancel_exactly(some, exponent):
    gradient = np.array([*some, -sum(some)], dtype=np.float32)[:, None] * np.float32(2.0) ** exponent
    assert mean_gradient(of(gradient, dtype=torch.float32), torch.ones(len(gradient)).double()).tolist() == [0.0]


@pytest.mark.parametrize("scale", [1e-30, 1e-5, 1e18, 1e30])
def test_float32_products_neither_underflow_nor_overflow(scale):
    gradient = torch.tensor(THREE) * scale
    expected = np.array([3.0, -1.0, 1.0]) * float(np.float32(scale)) ** 2
    np.testing.assert_allclose(applied(Alignment(), of(gradient, dtype=torch.float32)), expected, rtol=1e-6)


def test_wide_models_are_processed_in_blocks(monkeypatch):
    monkeypatch.setattr("turnout.core.updates._BLOCK", 1)
    monkeypatch.setattr("turnout.core.updates._COLUMNS", 3)
    gradient = np.random.default_rng(0).normal(size=(4, 10))
    np.testing.assert_allclose(applied(Alignment(), of(gradient)), gradient @ gradient.mean(axis=0), rtol=1e-12)


def test_missing_measurement_is_refused():
    assert Alignment().needs == ("start_gradient",)
    assert Alignment(psi=0.1).needs == ("start_gradient", "inexactness")
    assert SignOfAlignment().needs == ("start_gradient",)
    assert DivideBySecondCohort().needs == ()  # of those who train; the second cohort's come from the selection


@pytest.mark.parametrize("psi", [-0.1, float("inf"), "1", None])
def test_invalid_arguments_raise(psi):
    with pytest.raises(ConfigurationError, match=r"psi: got .*, needed a finite number >= 0"):
        Alignment(psi)
