"""Mean estimation by MaxFL: minima compared with a fine grid, and GM-Appeal with integrals, bounds and the paper's cases."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reproductions.maxfl.mean_estimation import (
    appeal,
    estimates,
    learning_rate,
    least_appeal_of_maxfl,
    minima,
    most_appeal_of_averaging,
    objective,
    separation,
)

from turnout import ConfigurationError

RUNS = 4000


def places(estimated):
    """The distinct minima of one run."""
    found = np.array(estimated, dtype=float) + minima(np.array([estimated], dtype=float))[0]
    return sorted(set(found.round(6).tolist()))


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=4))
def test_minima_equal_those_of_a_fine_grid(estimated):
    estimated = np.array(estimated)
    grid = np.linspace(estimated.min() - 1, estimated.max() + 1, 20001)
    value = objective(grid, estimated)
    inside = (value[1:-1] <= value[:-2]) & (value[1:-1] <= value[2:])
    low = grid[1:-1][inside]
    for w in estimated + minima(estimated[None])[0]:
        assert np.abs(low - w).min() < 2e-3 or _flat(w, estimated)


def _flat(w, estimated):
    """The objective has no slope to speak of around here."""
    near = objective(w + np.linspace(-0.05, 0.05, 11), estimated)
    return near.max() - near.min() < 1e-6


@given(st.floats(0.0, 6.0), st.floats(-5, 5))
def test_two_clients_collaborate_until_they_are_too_far_apart(half, center):
    """Below the separation the mean is the only minimum, above it there is one beside each estimate.

    Just below it, in a band of less than 0.01, the mean still is one, and there may be one beside each estimate already.
    """
    x = half**2
    if abs(x - separation()) < 1e-3:
        return
    found = places([center - half, center + half])
    if x < separation() - 0.01:
        assert found == pytest.approx([center] * len(found), abs=1e-5)
    elif x < separation():
        assert found[0] + found[-1] == pytest.approx(2 * center, abs=1e-5)
    else:
        assert len(found) == 2 or half > 5  # beyond which they are the estimates to the last digit
        assert found[0] + found[-1] == pytest.approx(2 * center, abs=1e-5)
        assert found[-1] > center


def test_separation_is_where_the_curvature_at_the_mean_changes_sign():
    assert 1 < separation() < 2  # the paper's two bounds
    for x, sign in ((separation() - 0.01, 1), (separation() + 0.01, -1)):
        half, h = math.sqrt(x), 1e-3
        left, middle, right = objective(np.array([-h, 0.0, h]), np.array([-half, half]))
        assert np.sign(left - 2 * middle + right) == sign


def test_minimum_is_accurate_beyond_floating_point_resolution():
    """For two distant clients, stationarity is ``d ~ e^-(2 half)^2 * 2 half * 4``: its logarithm is known."""
    for half in (4.0, 8.0, 12.0):
        offset = minima(np.array([[-half, half]]))[0]
        distance = 2 * half
        expected = -(distance**2) + math.log(4 * distance)
        assert math.log(offset[0]) == pytest.approx(expected, rel=1e-6)
        assert offset[1] == -offset[0]


def test_single_client_and_equal_clients_keep_their_estimate():
    assert minima(np.array([[3.0]])).tolist() == [[0.0]]
    assert np.abs(minima(np.array([[1.0, 1.0, 1.0]]))).max() < 1e-12


@pytest.mark.parametrize("heterogeneity", [0.0, 0.5, 1.0, 2.0])
def test_appeal_of_averaging_equals_its_integral(heterogeneity):
    """``P(((b - a)/2 + g) ((b + 3a)/2 + g) < 0)`` for standard normal a and b."""
    means = (0.0, 2 * heterogeneity)
    found = appeal(means, estimates(means, 60_000, seed=1), "fedavg")
    x = np.linspace(-7, 7, 1401)
    a, b = np.meshgrid(x, x)
    inside = ((b - a) / 2 + heterogeneity) * ((b + 3 * a) / 2 + heterogeneity) < 0
    density = np.exp(-(a**2 + b**2) / 2)
    expected = (density * inside).sum() / density.sum()
    assert found.mean() == pytest.approx(expected, abs=4 * found.std() / math.sqrt(len(found)) + 2e-3)
    if heterogeneity == 0:
        assert expected == pytest.approx(0.5 + math.asin(1 / math.sqrt(5)) / math.pi, abs=2e-3)


@pytest.mark.parametrize("heterogeneity", [0.0, 1.0, 2.0, 3.0, 4.4])
@pytest.mark.parametrize("gamma", [0.7, 1.0])
def test_bounds_of_the_paper_hold(heterogeneity, gamma):
    means = (0.0, 2 * heterogeneity)
    drawn = estimates(means, RUNS, gamma, seed=2)
    assert appeal(means, drawn, "fedavg").mean() <= most_appeal_of_averaging(heterogeneity, gamma)
    assert appeal(means, drawn).mean() >= least_appeal_of_maxfl(gamma)


def test_appeal_of_averaging_decreases_and_that_of_maxfl_does_not():
    """Far apart, the first client is content if its estimate errs away from the other: half the time."""
    at = (0.0, 1.5, 3.0, 6.0, 20.0)
    drawn = {g: estimates((0.0, 2 * g), RUNS, seed=3) for g in at}
    averaging = [appeal((0.0, 2 * g), drawn[g], "fedavg").mean() for g in at]
    maxfl = [appeal((0.0, 2 * g), drawn[g]).mean() for g in at]
    assert averaging == sorted(averaging, reverse=True)
    assert averaging[-1] == 0.0
    assert maxfl[0] == pytest.approx(averaging[0], abs=0.05)
    assert maxfl[-1] == pytest.approx(0.25, abs=0.02)


def test_three_clients_equal_the_papers_cases():
    """Figure 6: all equal, all different, and two equal."""
    alike, different, two = [0.1, 0.0, -0.1], [-8.0, 0.0, 8.0], [0.1, -0.1, 8.0]
    assert places(alike) == pytest.approx([0.0] * len(places(alike)), abs=1e-3)
    assert places(different) == pytest.approx(different, abs=1e-6)
    assert min(places(two), key=lambda w: objective(np.array(w), np.array(two))) == pytest.approx(0.0, abs=1e-3)


def test_maxfl_serves_the_two_equal_clients_of_three():
    means = (0.0, 0.0, 30.0)
    drawn = estimates(means, RUNS, gamma=0.5, seed=4)
    assert appeal(means, drawn).mean() == pytest.approx(2 / 3 * (0.5 + math.asin(1 / math.sqrt(5)) / math.pi), abs=0.03)
    assert appeal(means, drawn, "fedavg").mean() == 0.0


def test_invalid_input_raises():
    with pytest.raises(ConfigurationError, match="unknown method 'fedav': did you mean 'fedavg'"):
        appeal((0.0,), np.zeros((1, 1)), "fedav")
    with pytest.raises(ConfigurationError, match="means: got none"):
        estimates((), 3)
    with pytest.raises(ConfigurationError, match="runs: got 0"):
        estimates((1.0,), 0)
    with pytest.raises(ConfigurationError, match="gamma: got 0"):
        estimates((1.0,), 3, gamma=0)


def test_adaptive_step_is_smallest_at_an_estimate_and_grows_away_from_it():
    estimated = np.array([0.0, 8.0])
    at, between, beyond = learning_rate(np.array([0.0, 4.0, -3.0]), estimated)
    assert at == pytest.approx(4.0)
    assert between > 1e6
    assert beyond > 1e3
