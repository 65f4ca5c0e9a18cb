"""Laws of every availability pattern."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.population import (
    Availability,
    Bernoulli,
    Cyclic,
    Diurnal,
    Everyone,
    Markov,
    Sine,
    Staircase,
    TimedTrace,
    Trace,
)
from turnout.population.availability.independent import Modulated

TRACE = tuple((client, start, start + 3) for client in range(0, 300, 2) for start in range(client % 7, 50, 11))
PATTERNS = [
    Everyone(),
    Bernoulli(mean=0.3),
    Markov(mean=0.3),
    Markov(mean=0.04),
    Cyclic(mean=0.3, period=20),
    Cyclic(mean=0.3, period=20, authors_phase=True),
    Sine(mean=0.3),
    Staircase(mean=0.3),
    Diurnal(median=0.3, seconds_per_round=3600),
    TimedTrace(tuple((c, 8640 * s, 8640 * e) for c, s, e in TRACE), seconds_per_round=8640),
    Trace(TRACE),
]
RANDOM = [pattern for pattern in PATTERNS if not isinstance(pattern, Everyone | Trace | TimedTrace)]


def name(pattern: Availability) -> str:
    return repr(pattern)[:60].split(", correlated")[0]


@pytest.mark.parametrize("pattern", PATTERNS, ids=name)
@settings(max_examples=15, deadline=None)
@given(
    clients=st.lists(st.integers(0, 299), max_size=30),
    rounds=st.lists(st.integers(0, 200) | st.integers(0, 10**9), min_size=1, max_size=5),
    seed=st.integers(0, 2**63),
)
def test_result_depends_only_on_seed_client_and_round(pattern: Availability, clients, rounds, seed):
    asked = np.array(clients, dtype=np.int64)
    every_client = np.arange(300)
    bound = pattern.bind(300, None, seed)
    whole = {t: bound.available(every_client, t) for t in sorted(rounds)}
    again = pattern.bind(300, None, seed)
    for t in rounds:
        answer = again.available(asked, t)
        assert answer.dtype == bool
        assert answer.shape == asked.shape
        np.testing.assert_array_equal(answer, whole[t][asked])


@pytest.mark.parametrize("pattern", RANDOM, ids=name)
def test_additional_clients_do_not_change_others(pattern: Availability):
    clients = np.arange(100)
    few, many = pattern.bind(100, None, 3), pattern.bind(10**5, None, 3)
    for t in (0, 1, 50, 99):
        np.testing.assert_array_equal(few.available(clients, t), many.available(clients, t))


@pytest.mark.parametrize("pattern", RANDOM, ids=name)
def test_seeds_give_different_patterns(pattern: Availability):
    clients = np.arange(1000)
    first, second = (pattern.bind(1000, None, seed).available(clients, 30) for seed in (0, 1))
    assert (first != second).mean() > 0.05


@pytest.mark.parametrize("pattern", PATTERNS, ids=name)
def test_realized_rates_equal_declared_rates(pattern: Availability):
    num_rounds = 500  # whole cycles of the cyclic patterns and of the trace
    bound = pattern.bind(300, None, 5)
    clients = np.arange(300)
    realized = np.mean([bound.available(clients, t) for t in range(num_rounds)], axis=0)
    assert bound.rates is not None
    if isinstance(pattern, Bernoulli | Markov | Modulated | Diurnal):
        # Variance of a client's mean over a chain with correlation c is p (1 - p) (1 + c) / (1 - c) / rounds, c <= 0.84.
        assert realized.mean() == pytest.approx(bound.rates.mean(), abs=4.5 * np.sqrt(0.21 * 11.5 / num_rounds / 300))
    elif isinstance(pattern, Cyclic) and pattern.authors_phase:
        np.testing.assert_allclose(realized, bound.rates, atol=20 / num_rounds)
    elif isinstance(pattern, Trace | TimedTrace):
        period = bound.period // bound.seconds_per_round  # type: ignore[attr-defined]
        whole = num_rounds // period * period
        exact = np.mean([bound.available(clients, t) for t in range(whole)], axis=0)
        np.testing.assert_allclose(exact, bound.rates, atol=1e-12)
    else:
        np.testing.assert_allclose(realized, bound.rates, atol=1e-12)


@pytest.mark.parametrize("pattern", PATTERNS, ids=name)
def test_rates_are_read_only(pattern: Availability):
    rates = pattern.bind(300, None, 0).rates
    assert rates is not None
    assert rates.shape == (300,)
    assert rates.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        rates[0] = 0.5


@pytest.mark.parametrize("pattern", [Everyone(), Bernoulli(), Markov(), Cyclic()], ids=name)
def test_equal_rates_take_constant_memory(pattern: Availability):
    rates = pattern.bind(10**7).rates
    assert rates is not None
    assert rates.strides == (0,)


@pytest.mark.parametrize("pattern", PATTERNS, ids=name)
def test_federation_without_clients_is_refused(pattern: Availability):
    with pytest.raises(ValueError, match="num_clients: got 0, needed a whole number >= 1"):
        pattern.bind(0)


def test_always_makes_every_client_available():
    bound = Everyone().bind(5)
    assert bound.available(np.array([4, 0, 4]), 10**9).all()
    np.testing.assert_array_equal(bound.rates, np.ones(5))
