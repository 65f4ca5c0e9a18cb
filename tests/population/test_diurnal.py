"""Diurnal availability."""

import numpy as np
import pytest
from reproductions.availability.fit import presence_figures

from turnout import ConfigurationError
from turnout.population import Diurnal
from turnout.population.diagnostics import autocorrelation, presence, run_lengths

DAY = 144
CLIENTS = np.arange(2000)


@pytest.fixture(scope="module")
def bound():
    return Diurnal(never=0.05).bind(2000, None, 0)


@pytest.fixture(scope="module")
def here(bound):
    return presence(bound, 6 * DAY)


def test_realized_rates_equal_the_given_ones(bound, here):
    often = bound.rates > 0.2  # of the others six days say little
    assert (here.mean(axis=1) - bound.rates)[often].mean() == pytest.approx(0, abs=0.01)
    assert here.mean() == pytest.approx(bound.rates.mean(), abs=0.005)
    assert not here[bound.rates == 0].any()
    assert (bound.rates == 0).mean() == pytest.approx(0.05, abs=0.02)


def test_peak_has_more_clients_than_half_a_day_later(here):
    pattern = Diurnal()
    number = here[:, : 6 * DAY].reshape(2000, 6, DAY).mean(axis=(0, 1))
    peak = round(pattern.peak_hour * 6)
    assert number[peak] > 1.2 * number[(peak + DAY // 2) % DAY]


def test_zero_amplitude_is_a_two_state_process():
    bound = Diurnal(amplitude=0.0, renewal=0.2, renewal_spread=0.0, never=0.0).bind(2000, None, 1)
    here = presence(bound, 300)
    around = here - bound.rates[:, None]
    for lag in (1, 2, 5):
        assert autocorrelation(around, lag) == pytest.approx(0.8**lag, abs=0.02)


def test_shorter_rounds_keep_durations_in_clock_time():
    slow = presence(Diurnal(amplitude=0.0, renewal_spread=0.0).bind(300, None, 2), 200)
    fast = presence(Diurnal(amplitude=0.0, renewal_spread=0.0, seconds_per_round=60).bind(300, None, 2), 2000)
    assert run_lengths(fast).mean() / 10 == pytest.approx(run_lengths(slow).mean(), rel=0.2)


def test_clients_with_rare_labels_are_rarely_available():
    counts = np.eye(2, dtype=int)[np.arange(100) % 2]
    rates = Diurnal(correlated_with_labels=0.1).bind(100, counts, 3).rates
    low, high = sorted((rates[::2], rates[1::2]), key=np.mean)
    assert low.max() <= high.min()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"median": 0.0}, "median"),
        ({"median": 1.0}, "median"),
        ({"renewal": 0.0}, "renewal"),
        ({"amplitude": 1.5}, "amplitude"),
        ({"never": 1.0}, "at 1 no client is ever available"),
        ({"spread": -1.0}, "spread"),
        ({"renewal_spread": -1.0}, "renewal_spread"),
        ({"peak_concentration": float("nan")}, "peak_concentration"),
        ({"peak_hour": -1.0}, "peak_hour"),
        ({"seconds_per_round": 0}, "A round lasts whole seconds"),
        ({"correlated_with_labels": 0.0}, "correlated_with_labels"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Diurnal(**options)


def test_diagnostics_equal_known_values():
    here = np.tile(np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool), 10)
    figures = presence_figures(here, rounds_per_day=4)
    assert figures["mean"] == pytest.approx(0.5)
    assert figures["never"] == pytest.approx(1 / 3)
    assert figures["staying"] == pytest.approx((10 + 39) / (20 + 39))
    np.testing.assert_array_equal(np.sort(run_lengths(here)), [2] * 10 + [40])
    assert figures["correlation"][-1] == pytest.approx(1.0)
    assert figures["correlation"][0] == pytest.approx(0.0, abs=0.03)  # a row has one pair less
    with pytest.raises(ConfigurationError, match="more than a day of 40"):
        presence_figures(here, 40)


@pytest.mark.parametrize("options", [{"renewal": 1e-300}, {"renewal_spread": 1e20}])
def test_extreme_renewal_rates_are_bounded(options):
    """Clients that hardly ever renew keep their state; those that always do draw it anew, without a warning."""
    shares = presence(Diurnal(amplitude=0.0, never=0.0, **options).bind(200, None, 0), 50)
    assert 0.0 < shares.mean() < 1.0
