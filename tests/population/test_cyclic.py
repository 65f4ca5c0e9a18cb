"""Cyclic availability."""

import numpy as np
import pytest

from turnout.population import Cyclic


def path(pattern: Cyclic, num_clients: int, num_rounds: int, seed: int = 0) -> np.ndarray:
    bound = pattern.bind(num_clients, None, seed)
    return np.stack([bound.available(np.arange(num_clients), t) for t in range(num_rounds)])


def switches(here: np.ndarray) -> np.ndarray:
    """Return the number of departures of each client over the rounds, cyclically."""
    return (here & ~np.roll(here, -1, axis=0)).sum(axis=0)


def test_one_visit_of_the_right_length_per_cycle():
    here = path(Cyclic(mean=0.1), 500, 300)
    for cycle in (here[:100], here[57:157], here[200:]):
        np.testing.assert_array_equal(cycle.sum(axis=0), 10)
    np.testing.assert_array_equal(switches(here[:100]), 1)
    np.testing.assert_array_equal(here[:100], here[100:200])


@pytest.mark.parametrize(
    ("period", "rate", "on"),
    [
        (5, 0.5, 2),  # 2.5 rounds to the even number below
        (7, 0.5, 4),  # 3.5 to the even number above
        (100, 0.001, 1),  # never less than one round
        (100, 0.994, 99),
        (100, 0.995, 100),  # rounds to the whole period: always there
        (100, 1.0, 100),
        (2, 0.5, 1),
        (100, 0.0, 0),
    ],
)
def test_visit_length_follows_the_rate(period, rate, on):
    here = path(Cyclic(rates=(rate, 0.5), period=period), 2, 3 * period)
    assert here[:, 0].sum() == 3 * on
    rates = Cyclic(rates=(rate, 0.5), period=period).bind(2).rates
    assert rates is not None
    assert rates[0] == on / period


def test_first_rounds_are_stationary():
    num_clients = 40_000
    here = path(Cyclic(mean=0.25, period=20), num_clients, 20)
    spread = 4.5 * np.sqrt(0.25 * 0.75 / num_clients)
    np.testing.assert_allclose(here.mean(axis=1), 0.25, atol=spread)


def test_clients_have_independent_phases():
    here = path(Cyclic(mean=0.25, period=20), 40_000, 20)
    assert (here[:, ::2] & here[:, 1::2]).mean() == pytest.approx(0.25**2, abs=0.01)


def authors_rounds(on: int, off: int, remaining: int, num_rounds: int) -> list[bool]:
    """A client that starts absent, with `remaining` rounds of absence to go, counted down round by round."""
    here, rounds, left = [], False, remaining
    for _ in range(num_rounds):
        if left == 0:
            rounds = not rounds
            left = on if rounds else off
        left -= 1
        here.append(rounds)
    return here


@pytest.mark.parametrize(("period", "rate"), [(10, 0.3), (10, 0.02), (10, 0.9), (7, 0.5)])
def test_authors_phase_starts_absent_with_uniform_remaining_absence(period, rate):
    num_clients = 20_000
    here = path(Cyclic(mean=rate, period=period, authors_phase=True), num_clients, 3 * period)
    on = max(1, round(period * rate))
    off = period - on
    first = here.argmax(axis=0)
    for remaining in range(off):
        mine = here[:, first == remaining]
        assert mine.shape[1] == pytest.approx(
            num_clients / off, abs=4.5 * np.sqrt(num_clients / off * (1 - 1 / off)) + 1e-9
        )
        expected = np.array(authors_rounds(on, off, remaining, 3 * period))
        np.testing.assert_array_equal(mine, np.repeat(expected[:, None], mine.shape[1], axis=1))


def test_authors_phase_has_fewer_clients_in_first_rounds():
    here = path(Cyclic(mean=0.5, period=100, authors_phase=True), 5000, 60)
    assert here[0].mean() < 0.05
    assert here[55].mean() > 0.4


@pytest.mark.parametrize("authors_phase", [False, True])
def test_rate_one_is_always_available(authors_phase):
    assert path(Cyclic(mean=1.0, authors_phase=authors_phase), 50, 120).all()


@pytest.mark.parametrize("period", [1, 0, -5, 2.5, True])
def test_too_short_periods_are_refused(period):
    with pytest.raises(ValueError, match=r"period: got .* needed a whole number >= 2\. A period of 1 is Everyone\(\)"):
        Cyclic(period=period)


def test_infinite_periods_are_refused():
    with pytest.raises(ValueError, match=r"period: got 4294967296, needed less than 2\*\*31 rounds"):
        Cyclic(period=2**32)
