"""Sensitivity compared with brute force, streams of noise with matrices, and errors with known values."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.checks import ConfigurationError
from turnout.privacy import BandedSquareRoot, BufferedToeplitz, Independent, prefix_sum_error, sensitivity
from turnout.privacy.buffered_toeplitz import _column, _error_and_slope, _interlaced, _weights

FALLING = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).map(lambda some: np.sort([1.0, *some])[::-1].copy())


def matrix(column):
    """The lower triangular Toeplitz matrix with this first column."""
    n = len(column)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(n)] for i in range(n)])


@settings(max_examples=60, deadline=None)
@given(FALLING, st.integers(1, 4), st.integers(1, 3))
def test_no_participation_pattern_exceeds_the_sensitivity(column, separation, most):
    c, found = matrix(column), 0.0
    for times in range(1, most + 1):
        for rounds in combinations(range(len(column)), times):
            if all(b - a >= separation for a, b in pairwise(rounds)):
                found = max(found, float(np.linalg.norm(c[:, rounds].sum(axis=1))))
    assert sensitivity(column, separation, most) == pytest.approx(found, rel=1e-9)


def test_increasing_coefficients_are_refused():
    with pytest.raises(ValueError, match="must be positive and must not grow"):
        sensitivity(np.array([1.0, 0.5, 0.6]), 1)


@pytest.mark.parametrize("correlation", [BandedSquareRoot(), BandedSquareRoot(bands=7), BufferedToeplitz(2)])
def test_streamed_noise_equals_the_inverse_matrix_times_noise(correlation):
    plan = (12, 4, None)
    noise = (2.0**40 * torch.randn(12, 3, dtype=torch.float64)).round()
    state = {name: value.double() if value.dim() else value for name, value in correlation.init((3,), *plan).items()}
    streamed = []
    for row in noise:
        now, state = correlation.next(row, state, *plan)
        streamed.append(now)
    expected = np.linalg.solve(matrix(correlation.coefficients(*plan)), noise.numpy())
    found = torch.stack(streamed).numpy()
    assert (found == np.rint(found)).all()
    np.testing.assert_allclose(found, expected, rtol=0, atol=12.0)  # of 2^40: each round rounds once


def test_overwritten_noise_can_be_restored():
    """A step that is undone and repeated equals one that is taken once."""
    correlation, plan = BandedSquareRoot(), (12, 4, None)
    state, row = correlation.init((3,), *plan), torch.ones(3)
    for _ in range(5):
        _, state = correlation.next(row, state, *plan)
    kept = {name: (rows, state[name][rows].clone()) for name, rows in correlation.mutated_rows(state).items()}
    before = state["correlated"].clone()
    first, _ = correlation.next(row, state, *plan)
    assert not torch.equal(state["correlated"], before)
    for name, (rows, values) in kept.items():
        state[name][rows] = values
    assert torch.equal(state["correlated"], before)
    assert torch.equal(correlation.next(row, state, *plan)[0], first)


@pytest.mark.parametrize(("separation", "times"), [(10, 2.6), (50, 4.4), (100, 5.1)])
def test_prefix_sum_errors_match_published_ratios(separation, times):
    independent, banded = (
        prefix_sum_error(each.coefficients(500, separation, None), separation)
        for each in (Independent(), BandedSquareRoot())
    )
    assert independent / banded == pytest.approx(times, abs=0.05)


def test_buffers_approach_bands_with_a_twentieth_of_the_memory():
    plan = (200, 40, None)
    few, many = (prefix_sum_error(each.coefficients(*plan), 40) for each in (BufferedToeplitz(3), BandedSquareRoot()))
    assert few < 1.06 * many


@pytest.mark.parametrize(("rounds", "separation", "most"), [(23, 4, None), (30, 7, 2), (9, 1, 3), (6, 20, None)])
def test_search_minimizes_the_prefix_sum_error(rounds, separation, most):
    """At random gaps; its derivative by differences."""
    free = np.random.default_rng(rounds).normal(size=6)
    found, slope = _error_and_slope(free, rounds, separation, most)
    rates, roots = _interlaced(torch.from_numpy(free))
    column = _column(rates, _weights(rates, roots), rounds).numpy()
    assert found == pytest.approx(np.log(prefix_sum_error(column, separation, most)), rel=1e-10)
    for i, step in enumerate(1e-6 * np.eye(6)):
        above, below = (_error_and_slope(free + sign * step, rounds, separation, most)[0] for sign in (1, -1))
        assert slope[i] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize(
    ("plan", "known"), [((500, 10, None), 41.5931), ((500, 100, None), 7.1619), ((2000, 100, 5), 9.754)]
)
def test_search_is_at_least_as_good_as_nelder_mead(plan, known):
    """With 1,600 evaluations Nelder-Mead found 41.5930, 7.1618 and 10.3217 (four buffers)."""
    assert prefix_sum_error(BufferedToeplitz(4).coefficients(*plan), *plan[1:]) < known


def test_invalid_options_raise():
    with pytest.raises(ConfigurationError, match="bands"):
        BandedSquareRoot(bands=0)
    with pytest.raises(ConfigurationError, match="buffers"):
        BufferedToeplitz(0)
