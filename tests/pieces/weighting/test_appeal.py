"""MaxFL's weights: largest at the threshold, zero far from it, and never NaN."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import federation, report

from turnout import ConfigurationError, compose
from turnout.base.server_step import server_step
from turnout.pieces.local import AppealGap
from turnout.pieces.weighting import Appeal, DivideBySum, DivideBySumPlus

KNOWN = federation()


def weights_of(gaps, piece=None):
    gaps = torch.tensor(gaps, dtype=torch.float64)
    one = report(range(len(gaps)), seen={"appeal_gap": gaps})
    return (piece or Appeal()).apply(torch.ones(len(gaps), dtype=torch.float64), one, 0, {}, KNOWN)[0]


@given(st.floats(-30, 30))
def test_q_is_the_derivative_of_the_sigmoid(gap):
    s = 1 / (1 + math.exp(-gap))
    assert weights_of([gap])[0] == pytest.approx(s * (1 - s), rel=1e-3, abs=1e-15)
    points = torch.tensor([gap], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(points.sigmoid().sum(), points)
    assert weights_of([gap])[0] == pytest.approx(float(slope), rel=1e-3, abs=1e-15)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_nan_gap_gives_nan_and_the_threshold_has_the_largest_weight(gap):
    q = weights_of([gap, -gap, 0.0])
    assert q[0] == q[1]
    assert q[2] == 0.25
    assert 0 <= q[0] <= 0.25 + 1e-16  # to the last digit
    if abs(gap) > 1e-6:
        assert q[0] < 0.25


@pytest.mark.parametrize("gap", [746.0, 1e3, 1e300, 1.7e308])
def test_huge_gaps_have_zero_weight(gap):
    assert weights_of([gap, -gap]).tolist() == [0.0, 0.0]
    assert weights_of([gap, -gap], Appeal(sharpness=10.0)).tolist() == [0.0, 0.0]


def test_weight_decays_exponentially_far_from_the_threshold():
    """``1 - s`` of a large gap is 0 in floating point, and q is not."""
    q = weights_of([50.0, -50.0, 700.0])
    torch.testing.assert_close(q.log(), torch.tensor([-50.0, -50.0, -700.0], dtype=torch.float64), rtol=1e-12, atol=0)


def test_line_8_gives_the_least_content_clients_the_largest_weight():
    q = weights_of([-1e300, -2.0, 0.0, 2.0, 1e300], Appeal(q="sigmoid"))
    assert q.tolist() == sorted(q.tolist())
    assert q[0] == 0.0
    assert q[2] == 0.5
    assert q[4] == 1.0


def test_sharpness_scales_the_gap():
    assert torch.equal(weights_of([0.3, -2.0], Appeal(sharpness=4.0)), weights_of([1.2, -8.0]))


def test_earlier_weights_are_multiplied():
    one = report([0, 1], seen={"appeal_gap": torch.zeros(2)})
    earlier = torch.tensor([2.0, 0.5], dtype=torch.float64)
    assert Appeal().apply(earlier, one, 0, {}, KNOWN)[0].tolist() == [0.5, 0.125]


def step(gaps, epsilon=1e-3, delta=None, chain=None):
    """Return the length of a server step."""
    algorithm = compose(*(chain or (Appeal(), DivideBySumPlus(epsilon))), AppealGap())
    one = report(range(len(gaps)), delta, seen={"appeal_gap": torch.tensor(gaps, dtype=torch.float64)})
    start = torch.zeros(5, dtype=torch.float64)
    state, info = server_step(algorithm, algorithm.init(start, KNOWN), one, KNOWN)
    assert torch.isfinite(info["weights"]).all()
    return state.params


@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1.0])
def test_underflow_of_all_weights_leaves_the_model_unchanged(epsilon):
    assert not step([1e4, -1e4, 800.0], epsilon).any()


@given(st.floats(-20, 20), st.integers(1, 8), st.floats(1e-8, 10), st.integers(0, 99))
def test_identical_gaps_give_the_mean_with_the_adaptive_step(gap, size, epsilon, seed):
    """``eta m q / (m q + epsilon)`` times the mean update."""
    delta = torch.randn(size, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    q = math.exp(-abs(gap)) / (1 + math.exp(-abs(gap))) ** 2
    expected = delta.mean(dim=0) * (size * q / (size * q + epsilon))
    torch.testing.assert_close(step([gap] * size, epsilon, delta), expected, rtol=1e-9, atol=1e-12)


def test_weights_sum_to_one_without_epsilon():
    gaps = [0.3, -1.0, 5.0]
    delta = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(step(gaps, 0.0, delta), step(gaps, delta=delta, chain=(Appeal(), DivideBySum())))


def test_epsilon_damps_rounds_far_from_the_threshold():
    far, near = step([20.0, 20.0], 1.0), step([0.0, 0.0], 1.0)
    assert far.norm() < 1e-7
    assert near.norm() == pytest.approx(5**0.5 * 0.5 / 1.5)


@pytest.mark.parametrize(
    ("piece", "options", "message"),
    [
        (Appeal, {"q": "sigmoidal"}, "unknown value of q 'sigmoidal'"),
        (Appeal, {"sharpness": 0.0}, r"sharpness: got 0\.0, needed a finite number > 0"),
        (DivideBySumPlus, {"epsilon": -1.0}, r"epsilon: got -1\.0, needed a finite number >= 0"),
    ],
)
def test_invalid_options_raise(piece, options, message):
    with pytest.raises(ConfigurationError, match=message):
        piece(**options)


def test_missing_gap_is_refused():
    with pytest.raises(ConfigurationError, match=r"Appeal reads appeal_gap of every report.*add AppealGap\(\)"):
        compose(Appeal(), DivideBySumPlus())
