"""Uniform cohorts with replacement."""

from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import ConfigurationError
from turnout.base.selection import check_selection
from turnout.core.candidates import Candidates
from turnout.pieces.local import StartGradient
from turnout.pieces.selection import TwoCohorts, WithReplacement
from turnout.population import Bernoulli, Markov


def candidates(here, round=0, seed=0):
    here = np.asarray(here, dtype=bool)
    return Candidates(lambda clients: here[clients], len(here), round, seed)


def multisets(present, size):
    """Every multiset of so many draws, with its probability."""
    n = len(present)
    return {
        m: factorial(size) / prod(factorial(m.count(k)) for k in set(m)) / n**size
        for m in combinations_with_replacement(present, size)
    }


def assert_frequencies(seen, likely, total):
    assert seen.keys() <= likely.keys()
    square = sum((seen.get(m, 0) - total * p) ** 2 / (total * p) for m, p in likely.items())
    freedom = len(likely) - 1
    assert abs(square - freedom) < 4.5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize(
    ("here", "size", "which"),
    [
        ([1, 1, 1], 3, "select"),
        ([1, 1, 1, 1], 2, "measuring"),
        ([0, 1, 1, 0, 1, 0], 2, "select"),
        # Often too few among the first draws: the rest is drawn from those who are there.
        ([0] * 40 + [1, 1, 1], 3, "select"),
        ([0] * 40 + [1, 1, 1], 3, "measuring"),
        ([0] * 500 + [1, 1], 4, "select"),
    ],
    ids=["three", "four", "half", "few", "few measured", "two of many"],
)
def test_draws_are_uniform_and_independent(here, size, which):
    """The multisets are as frequent as they are likely, of either cohort."""
    rounds, seen = 1500, {}
    draw = getattr(TwoCohorts(size), which)
    for t in range(rounds):
        cohort = draw(candidates(here, t))
        seen[tuple(cohort.tolist())] = seen.get(tuple(cohort.tolist()), 0) + 1
    assert_frequencies(seen, multisets(np.flatnonzero(here).tolist(), size), rounds)


@settings(max_examples=80, deadline=None)
@given(
    num_clients=st.integers(1, 30) | st.integers(1000, 3000),
    cohort_size=st.integers(1, 60),
    mean=st.sampled_from([0.001, 0.05, 0.5, 1.0]),
    round=st.integers(0, 10**6),
    seed=st.integers(0, 100),
)
def test_returns_the_requested_draws_in_ascending_order(num_clients, cohort_size, mean, round, seed):
    bound = Bernoulli(mean=mean).bind(num_clients, None, seed)
    here = np.flatnonzero(bound.available(np.arange(num_clients), round))
    some = Candidates(lambda ids: bound.available(ids, round), num_clients, round, seed)
    for cohort in (WithReplacement(cohort_size).select(some), TwoCohorts(cohort_size).measuring(some)):
        assert cohort.dtype == np.int64
        assert len(cohort) == (cohort_size if len(here) else 0)
        assert (np.diff(cohort) >= 0).all()
        assert np.isin(cohort, here).all()


def test_second_cohort_is_independent_of_the_first():
    rows = [candidates([1] * 50, t) for t in range(20)]
    for one in rows:
        assert TwoCohorts(6).select(one).tolist() == WithReplacement(6).select(one).tolist()
        assert TwoCohorts(6).select(one).tolist() != TwoCohorts(6).measuring(one).tolist()
    assert TwoCohorts.measurements == (StartGradient(),)


def test_uniform_selection_needs_no_measurement():
    assert WithReplacement.measurements == ()
    assert len(WithReplacement(4).measuring(candidates([1, 1]))) == 0


def test_draws_differ_by_round_and_seed_reproducibly():
    def cohort(round, seed):
        return tuple(WithReplacement(5).select(candidates([1] * 1000, round, seed)).tolist())

    assert cohort(3, 0) == cohort(3, 0)
    assert len({cohort(t, s) for t in range(20) for s in range(5)}) == 100


def test_more_draws_than_clients_are_possible():
    cohort = WithReplacement(1000).select(candidates([1, 1, 1]))
    assert len(cohort) == 1000
    assert (np.bincount(cohort) > 250).all()
    check_selection(WithReplacement(1000), 3)


def test_number_of_queried_clients_does_not_grow_with_the_population():
    asked = {}
    for num_clients in (10**4, 10**7):
        bound, counted = Markov(mean=0.1).bind(num_clients, None, 0), []

        def available(ids, bound=bound, counted=counted, t=0):
            counted.append(len(ids))
            return bound.available(ids, t)

        for t in range(10):
            WithReplacement(100).select(Candidates(lambda ids, t=t: available(ids, t=t), num_clients, t, 0))
        asked[num_clients] = sum(counted) / 10
    assert 1000 < asked[10**4] < 4000  # 100 / 0.1, and at most twice the last question
    assert asked[10**7] == pytest.approx(asked[10**4], rel=0.3)


@pytest.mark.parametrize("kind", [WithReplacement, TwoCohorts])
@pytest.mark.parametrize("cohort_size", [0, -1, 2.5, True])
def test_empty_cohort_is_refused(kind, cohort_size):
    with pytest.raises(ConfigurationError, match=r"cohort_size: got .*, needed a whole number >= 1"):
        kind(cohort_size)
