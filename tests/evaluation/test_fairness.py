"""Fairness figures: known values and laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.checks import ConfigurationError
from turnout.evaluation.fairness import fairness, jain, spread, worst

accuracies = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60).map(np.array)


@pytest.mark.parametrize(
    ("number", "clients"), [(1, 1), (9, 1), (10, 1), (11, 2), (100, 10), (101, 11), (250, 25)], ids=str
)
def test_worst_tenth_has_the_right_number_of_clients(number, clients):
    values = np.arange(number)[::-1] / number
    assert worst(values) == pytest.approx(np.arange(clients).mean() / number)


def test_rounding_of_fractions_of_clients():
    assert 0.07 * 100 > 7
    assert worst(np.arange(100.0), fraction=0.07) == 3.0


def test_figures_equal_known_values():
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([1.0, 2.0, 3.0]) == pytest.approx(36 / (3 * 14))
    assert jain([0.0, 0.0]) == 1.0
    assert spread([0.2, 0.4]) == pytest.approx(0.1)  # divides by n, not by n - 1


def test_clients_without_data_are_excluded_and_counted():
    assert fairness([0.5, math.nan, 0.7, math.nan]) == {**fairness([0.5, 0.7]), "missing": 2}
    assert fairness([0.5, 0.7])["clients"] == 2


def test_no_client_with_data_gives_nan():
    figures = fairness([math.nan, math.nan])
    assert figures["clients"] == 0
    assert figures["missing"] == 2
    assert all(math.isnan(figures[name]) for name in ("mean", "spread", "worst", "jain"))


@given(accuracies)
def test_bounds_and_order(values):
    figures = fairness(values)
    assert 1 / len(values) - 1e-9 <= figures["jain"] <= 1 + 1e-9
    assert values.min() - 1e-12 <= figures["worst"] <= figures["mean"] + 1e-12
    assert worst(values, fraction=1.0) == pytest.approx(figures["mean"])
    assert figures["spread"] <= 0.5 + 1e-12


@given(accuracies, st.floats(1e-200, 1e200))
def test_jain_index_is_scale_invariant(values, unit):
    # Below the smallest normal number a product is rounded, so such values have no scaled copy.
    values = np.where(values < 1e-6, 0.0, values)
    assert jain(values * unit) == pytest.approx(jain(values))


def test_invalid_arguments_raise():
    with pytest.raises(ConfigurationError, match="fraction: got 0, needed a number > 0 and <= 1"):
        worst([0.5], fraction=0)
    with pytest.raises(ConfigurationError, match=r"values: got -0.5, needed finite numbers >= 0. Use spread"):
        jain([0.2, -0.5])
    with pytest.raises(ConfigurationError, match=r"array of shape \(2, 1\), needed one value for each client"):
        spread([[1.0], [2.0]])
