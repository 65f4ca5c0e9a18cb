"""Modulated availability."""

import numpy as np
import pytest

from turnout import ConfigurationError
from turnout.population import InterleavedSine, Sine, Staircase

N = 20_000
BASE = 0.5


def shares(pattern, num_rounds):
    bound = pattern.bind(N, None, 0)
    return np.array([bound.available(np.arange(N), t).mean() for t in range(num_rounds)])


@pytest.mark.parametrize(
    ("pattern", "factor"),
    [
        (Sine(mean=BASE, gamma=0.3), lambda t: 0.3 * np.sin(2 * np.pi * t / 20) + 0.7),
        (Sine(mean=BASE, gamma=0.1, period=7), lambda t: 0.1 * np.sin(2 * np.pi * t / 7) + 0.9),
        (Staircase(mean=BASE), lambda t: np.where(t // 10 % 2 == 1, 0.4, 1.0)),
    ],
)
def test_rates_follow_the_pattern_in_every_round(pattern, factor):
    rounds = np.arange(25)
    spread = 4.5 * np.sqrt(0.25 / N)
    np.testing.assert_allclose(shares(pattern, 25), BASE * factor(rounds), atol=spread)


def test_interleaved_clients_are_absent_below_the_cutoff():
    pattern = InterleavedSine(rates=(0.14, 0.9), gamma=0.3, cutoff=0.1)
    bound = pattern.bind(2)
    swinging = 0.14 * (0.3 * np.sin(2 * np.pi * np.arange(20) / 20) + 0.7)
    expected = np.where(swinging >= 0.1, swinging, 0)
    assert (expected == 0).any()
    assert (expected > 0).any()
    found = np.array([pattern.at(np.array([0.14, 0.9]), t)[0] for t in range(20)])
    np.testing.assert_allclose(found, expected)
    assert bound.rates[0] == pytest.approx(expected.mean())
    assert bound.rates[1] == pytest.approx(0.9 * 0.7)


def test_rates_are_means_over_a_period():
    bound = Staircase(mean=0.2).bind(10**6)
    assert bound.rates.strides == (0,)
    assert bound.rates[5] == pytest.approx(0.2 * 0.7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sine(gamma=0.6), "gamma.*at most 0.5: a rate would fall below 0"),
        (lambda: Sine(gamma=-0.1), "gamma"),
        (lambda: Sine(period=1), r"period: got 1, .* Rates that stay the same are Bernoulli\(\)"),
        (lambda: Staircase(low=1.5), "low"),
        (lambda: InterleavedSine(cutoff=2.0), "cutoff"),
    ],
)
def test_invalid_options_raise(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
