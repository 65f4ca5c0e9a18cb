"""Drop-out during tasks."""

import math

import numpy as np
import pytest

from turnout.population import Dropout

N = 100_000
CLIENTS, TASKS = np.arange(N) // 100, np.arange(N) % 100


def deaths(dropout: Dropout, seconds: np.ndarray, seed: int = 0) -> np.ndarray:
    return dropout.bind(seed).deaths(CLIENTS, TASKS, seconds)


def about(p: float) -> float:
    return pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / N))  # type: ignore[return-value]


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_probability_per_task_with_a_uniform_time(p):
    seconds = np.where(np.arange(N) % 2, 10.0, 40.0)
    when = deaths(Dropout(probability=p), seconds) / seconds
    dead = np.isfinite(when)
    assert dead.mean() == about(p)
    assert when[dead].max() < 1
    for fraction in (0.1, 0.5, 0.9):
        assert (when < fraction).mean() == about(p * fraction)


def test_hazard_gives_exponential_survival():
    seconds = np.full(N, 20.0)
    when = deaths(Dropout(hazard=0.03), seconds)
    assert np.isinf(when).mean() == about(math.exp(-0.6))
    for at in (1.0, 10.0, 19.0):
        assert (when > at).mean() == about(math.exp(-0.03 * at))
    assert when[np.isfinite(when)].max() < 20


def test_earlier_of_both_applies():
    seconds = np.full(N, 20.0)
    both = deaths(Dropout(0.2, 0.03), seconds)
    np.testing.assert_array_equal(
        both, np.minimum(deaths(Dropout(0.2), seconds), deaths(Dropout(hazard=0.03), seconds))
    )
    assert np.isinf(both).mean() == about(0.8 * math.exp(-0.6))


def test_drop_out_depends_only_on_seed_client_and_task():
    seconds = np.full(N, 20.0)
    whole = deaths(Dropout(0.5, 0.03), seconds)
    rows = np.array([70, 3, 99_999])
    some = Dropout(0.5, 0.03).bind(0).deaths(CLIENTS[rows], TASKS[rows], seconds[rows])
    np.testing.assert_array_equal(some, whole[rows])
    assert (deaths(Dropout(0.5), seconds, 1) != deaths(Dropout(0.5), seconds)).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"probability and hazard are both 0, so nobody drops out: write dropout=None"),
        ({"probability": 1}, r"probability: got 1, so nothing would ever arrive: write less than 1"),
        ({"probability": 1.5}, r"probability: got 1\.5, needed a probability"),
        ({"hazard": -1}, r"hazard: got -1, needed a finite number >= 0"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        Dropout(**options)
