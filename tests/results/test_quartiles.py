"""Quartiles with missing values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.results.statistics import Quartiles

INF = math.inf


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], (7, 7, 7)),
        ([1.0, 2.0], (1, 1.5, 2)),
        ([3.0, 1.0, 2.0], (1, 2, 3)),
        ([1.0, 2.0, 3.0, 4.0], (1.5, 2.5, 3.5)),
        (list(range(1, 11)), (3, 5.5, 8)),
    ],
)
def test_quartiles_equal_known_values(values, expected):
    found = Quartiles.over(values)
    assert (found.low, found.median, found.high) == expected
    assert (found.num_finite, found.num) == (len(values), len(values))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5.0, INF], (5, 5, INF)),  # half of the seeds have it
        ([5.0, INF, INF], (5, INF, INF)),  # more than half do not
        ([1.0, 2.0, 3.0, INF], (1.5, 2.5, 3)),
        ([1.0, 2.0, INF, INF], (1.5, 2, INF)),
        ([INF], (INF, INF, INF)),
        ([-INF, 1.0], (-INF, 1, 1)),  # where more is better, what is missing is the least
        ([-INF, -INF, 1.0], (-INF, -INF, 1)),
    ],
)
def test_median_is_missing_if_more_than_half_of_values_are(values, expected):
    found = Quartiles.over(values)
    assert (found.low, found.median, found.high) == expected
    assert found.num_finite == sum(map(math.isfinite, values))


@given(st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=30))
def test_complete_quartiles_equal_numpy(values):
    found = Quartiles.over(values)
    expected = np.quantile(values, [0.25, 0.5, 0.75], method="averaged_inverted_cdf")
    np.testing.assert_allclose([found.low, found.median, found.high], expected, atol=1e-9)
    np.testing.assert_allclose(found.median, np.median(values), atol=1e-9)


@given(st.lists(st.floats(0, 1e6), max_size=30), st.integers(0, 30))
def test_quartile_exists_once_enough_seeds_have_a_value(values, missing):
    values = [*values, *[INF] * missing] or [INF]
    found = Quartiles.over(values)
    for share, figure in zip((0.25, 0.5, 0.75), (found.low, found.median, found.high), strict=True):
        assert math.isfinite(figure) == (found.num_finite >= share * len(values))
    assert found.low <= found.median <= found.high
