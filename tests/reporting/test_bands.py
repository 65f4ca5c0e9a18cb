"""Bands: quartiles over seeds, at rounds that all seeds have."""

import math

import numpy as np

from turnout.reporting.curves import quartile_band


def test_quartiles_over_seeds_by_round():
    rounds = np.array([5, 10])
    points, low, median, high = quartile_band([(rounds, np.array([float(i), 10.0 * i])) for i in range(5)])
    assert points.tolist() == [5, 10]
    np.testing.assert_array_equal([low, median, high], [[1, 10], [2, 20], [3, 30]])


def test_rounds_missing_in_a_seed_are_omitted():
    one, other = (np.array([2, 4, 6]), np.array([1.0, 2.0, 3.0])), (np.array([4, 6, 8]), np.array([4.0, 5.0, 6.0]))
    points, _, median, _ = quartile_band([one, other])
    assert points.tolist() == [4, 6]
    np.testing.assert_array_equal(median, [3.0, 4.0])


def test_diverged_seed_leaves_a_gap():
    rounds = np.array([1, 2])
    _, low, median, high = quartile_band([(rounds, np.array([1.0, math.inf])), (rounds, np.array([1.0, 2.0]))])
    assert np.isnan([low[1], median[1], high[1]]).all()
    assert median[0] == 1.0
