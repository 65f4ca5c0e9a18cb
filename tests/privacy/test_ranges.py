"""Options with which sums with noise, or an adapted norm, would overflow are refused."""

from functools import partial

import numpy as np
import pytest
import torch
from tests.tiny import federation, report

import turnout as to
from turnout import ConfigurationError
from turnout.pieces.aggregation import PrivateSum
from turnout.pieces.aggregation.private_quantile import FASTEST
from turnout.privacy.ranges import BOUNDS

BOUNDED = {
    "norm": PrivateSum,
    "control_norm": PrivateSum,
    "largest_loss": to.privacy.Answers,
    "most": to.weighting.DivideByNoisySum,
    "least": to.weighting.DivideByNoisyCurvature,
}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("value", [0.0, -1.0, 1e-38, 1e38, float("inf"), float("nan"), "1", True])
def test_bounds_out_of_range_are_refused(name, value):
    with pytest.raises(
        ConfigurationError, match=rf"{name}: got .*, needed a number from 1e-30 to 1e\+09, so that sums"
    ):
        BOUNDED[name](**{name: value})


@pytest.mark.parametrize("value", [0.0, 1e38])
def test_norm_of_noise_shares_out_of_range_is_refused(value):
    with pytest.raises(ConfigurationError, match=r"norm: got .*, needed a number from 1e-30"):
        to.guard.NoiseShare(norm=value)


def test_shares_too_small_for_float32_are_refused():
    with pytest.raises(
        ConfigurationError, match=r"got noise_multiplier=0.001 for shares=1000000000, .* larger noise_mul"
    ):
        to.guard.NoiseShare(1.0, 0.001, shares=10**9)


@pytest.mark.parametrize("rate", [0.0, -0.2, 10.5, 1e6, float("inf")])
def test_step_sizes_of_the_norm_out_of_range_are_refused(rate):
    message = (
        r"quantile_rate: got .*, needed a number > 0 and at most 10: a round multiplies .* The paper's value is 0.2"
    )
    with pytest.raises(ConfigurationError, match=message):
        PrivateSum(quantile=0.5, cohort=8, quantile_rate=rate)


@pytest.mark.parametrize("deviation", [3.0, 1e6])
def test_norm_stays_in_range_whatever_the_noise_of_the_count(deviation):
    """With the largest step size, for hundreds of rounds of one report each."""
    piece = PrivateSum(noise_multiplier=1.0, cohort=1, quantile=0.9, quantile_rate=FASTEST, count_deviation=deviation)
    known = federation(20, 3)
    state, norms = piece.init(known), []
    for _ in range(200):
        sent = report([0], torch.ones(1, 3, dtype=torch.float64))
        moved, state = piece.apply(torch.ones(1, dtype=torch.float64), sent, state, known)
        norms.append(float(state["norm"]))
        assert moved.isfinite().all()
    assert np.all((np.array(norms) >= BOUNDS[0]) & (np.array(norms) <= BOUNDS[1]))


def test_largest_noise_is_finite_in_float32():
    piece, known = PrivateSum(norm=BOUNDS[1], noise_multiplier=1e6, cohort=1), federation(20, 100, dtype=torch.float32)
    empty = partial(report, [], torch.zeros(0, 100), dtype=torch.float32)
    moved, _ = piece.apply(torch.zeros(0, dtype=torch.float64), empty(), piece.init(known), known)
    assert moved.dtype == torch.float32
    assert moved.isfinite().all()
    assert moved.square().sum().isfinite()
