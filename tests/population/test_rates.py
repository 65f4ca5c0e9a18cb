"""Participation rates that depend on labels."""

from typing import Any

import numpy as np
import pytest

from turnout.population import Bernoulli, Cyclic, Markov, label_correlated_rates

PATTERNS = [Bernoulli, Markov, Cyclic]
ONE_CLASS_EACH = 30 * np.eye(10, dtype=np.int64)


def test_class_rates_are_shared_by_all_clients():
    # A client of a single class c has the rate q_c * C * mean; q sums to 1.
    pure = label_correlated_rates(ONE_CLASS_EACH, mean=0.1, alpha=0.5, floor=0.0, seed=4)
    assert pure.sum() == pytest.approx(10 * 0.1)
    mixed = np.array([[1, 2, 3, 4, 0, 0, 0, 0, 0, 0], [100, 0, 0, 0, 0, 0, 0, 0, 0, 300]])
    rates = label_correlated_rates(mixed, mean=0.1, alpha=0.5, floor=0.0, seed=4)
    np.testing.assert_allclose(rates, mixed @ pure / mixed.sum(axis=1))


def test_mean_over_seeds_equals_the_mean():
    rates = np.array([label_correlated_rates(ONE_CLASS_EACH, 0.1, 0.1, 0.0, seed) for seed in range(2000)])
    # Var q_c = (1/C) (1 - 1/C) / (C alpha + 1) = 0.045, and C * mean = 1
    np.testing.assert_allclose(rates.mean(axis=0), 0.1, atol=4.5 * np.sqrt(0.045 / 2000))
    assert rates.var(axis=0).mean() == pytest.approx(0.045, rel=0.1)


def test_smaller_concentration_increases_the_spread():
    def spread(alpha: float) -> float:
        return float(np.mean([label_correlated_rates(ONE_CLASS_EACH, 0.1, alpha, 0, s).std() for s in range(50)]))

    assert spread(0.05) > spread(0.5) > spread(5.0)


def test_floor_and_ceiling_bound_rates():
    rates = np.array([label_correlated_rates(ONE_CLASS_EACH, 0.5, 0.1, 0.02, seed) for seed in range(20)])
    assert rates.min() == 0.02
    assert rates.max() == 1.0


def test_client_without_examples_is_refused():
    counts = ONE_CLASS_EACH.copy()
    counts[3] = 0
    with pytest.raises(ValueError, match=r"client 3 has no examples.*drop empty clients"):
        label_correlated_rates(counts, 0.1, 0.1, 0.02)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_availability_patterns_use_the_rates(pattern):
    bound = pattern(mean=0.1, correlated_with_labels=0.1).bind(10, ONE_CLASS_EACH, 6)
    expected = label_correlated_rates(ONE_CLASS_EACH, 0.1, 0.1, 0.02, 6)
    np.testing.assert_allclose(bound.rates, expected, atol=0.005 if pattern is Cyclic else 0)  # cyclic rounds to 1/100


@pytest.mark.parametrize("pattern", PATTERNS)
def test_class_rates_can_be_given(pattern):
    given = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5)
    as_list: Any = list(given)
    rates = pattern(mean=0.2, correlated_with_labels=given).bind(10, ONE_CLASS_EACH, 6).rates
    np.testing.assert_allclose(rates, 0.2 * 10 / 9.5 * np.array(given), atol=0.005 if pattern is Cyclic else 1e-12)
    assert pattern(correlated_with_labels=as_list) == pattern(correlated_with_labels=given)
    with pytest.raises(ValueError, match="needed one number, or one for each of the 10 classes"):
        pattern(correlated_with_labels=given[:9]).bind(10, ONE_CLASS_EACH, 6)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rates_without_labels_equal_the_mean(pattern):
    np.testing.assert_array_equal(pattern(mean=0.01).bind(7).rates, np.full(7, 0.01))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_given_rates_are_returned(pattern):
    rates = np.array([0.1, 0.5, 1.0])
    made = pattern(rates=rates)
    assert made.rates == (0.1, 0.5, 1.0)
    assert made == pattern(rates=[0.1, 0.5, 1.0])
    np.testing.assert_array_equal(made.bind(3).rates, rates)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": 1.5}, "mean: got 1.5, needed a probability"),
        ({"mean": -0.1}, "mean: got -0.1, needed a probability"),
        ({"mean": float("nan")}, "mean: got nan, needed a probability"),
        ({"mean": 0.0}, "mean: got 0.0, needed a probability > 0. At 0 no client is ever available"),
        ({"floor": 1.01}, "floor: got 1.01, needed a probability"),
        ({"floor": -1}, "floor: got -1, needed a probability"),
        ({"correlated_with_labels": 0.0}, "correlated_with_labels: got 0.0, needed a finite number > 0"),
        ({"correlated_with_labels": True}, "correlated_with_labels: got True, needed a finite number > 0"),
        (
            {"correlated_with_labels": (1.0, -0.5)},
            r"correlated_with_labels\[1\]: got -0.5, needed a finite number >= 0",
        ),
        ({"correlated_with_labels": (0.0, 0.0)}, "needed a number > 0 for at least one class"),
        ({"rates": (0.1, 1.2)}, r"rates\[1\]: got 1.2, needed a probability"),
        ({"rates": (float("nan"),)}, r"rates\[0\]: got nan, needed a probability"),
        (
            {"rates": (0.1,), "correlated_with_labels": 0.1},
            r"are both given \(rates\) and drawn \(correlated_with_labels\): write correlated_with_labels=None",
        ),
    ],
)
def test_invalid_options_raise(pattern, options, message):
    with pytest.raises(ValueError, match=message):
        pattern(**options)


def test_missing_labels_are_refused():
    with pytest.raises(ValueError, match=r"needs the class counts of every client.*write correlated_with_labels=None"):
        Markov(correlated_with_labels=0.1).bind(10, None)


def test_labels_of_wrong_length_are_refused():
    with pytest.raises(ValueError, match=r"label_counts: got \(10, 10\), needed the shape \(11, number of classes\)"):
        Markov(correlated_with_labels=0.1).bind(11, ONE_CLASS_EACH)


def test_rates_of_wrong_length_are_refused():
    with pytest.raises(ValueError, match="rates: got 2, needed one rate for each of 3 clients"):
        Bernoulli(rates=(0.1, 0.2)).bind(3)
