"""Uniform cohorts without replacement."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import turnout as to
from turnout.algorithms import ALGORITHMS
from turnout.base.selection import check_selection
from turnout.core.candidates import Candidates
from turnout.core.random import stream
from turnout.pieces.selection import Uniform
from turnout.pieces.selection.draws import RandomOrder
from turnout.population import Availability, Bernoulli, Everyone, Markov


class Asked:
    """An availability that notes how many clients are asked, and how often."""

    def __init__(self, pattern: Availability, num_clients: int, seed: int = 0) -> None:
        self.bound = pattern.bind(num_clients, None, seed)
        self.clients, self.calls = 0, 0

    def at(self, round: int) -> Callable[[np.ndarray], np.ndarray]:
        def available(clients: np.ndarray) -> np.ndarray:
            self.clients += len(clients)
            self.calls += 1
            return self.bound.available(clients, round)

        return available


@settings(max_examples=80, deadline=None)
@given(
    num_clients=st.integers(1, 60) | st.integers(1025, 4000),
    cohort_size=st.integers(1, 40),
    mean=st.sampled_from([0.001, 0.1, 0.5, 1.0]),
    round=st.integers(0, 10**6),
    seed=st.integers(0, 100),
)
def test_selects_the_first_available_of_a_random_order(num_clients, cohort_size, mean, round, seed):
    bound = Bernoulli(mean=mean).bind(num_clients, None, seed)
    cohort = Uniform(cohort_size).select(Candidates(lambda ids: bound.available(ids, round), num_clients, round, seed))
    here = np.flatnonzero(bound.available(np.arange(num_clients), round))
    assert cohort.dtype == np.int64
    assert len(cohort) == min(cohort_size, len(here))
    assert (np.diff(cohort) > 0).all()
    assert np.isin(cohort, here).all()

    order, whole = RandomOrder(stream("selection", seed, round), num_clients), np.empty(0, dtype=np.int64)
    while len(whole) < num_clients:
        whole = np.concatenate([whole, order.take(num_clients)])
    np.testing.assert_array_equal(cohort, np.sort(whole[np.isin(whole, here)][:cohort_size]))


@pytest.mark.parametrize("num_clients", [12, 1200], ids=["shuffled", "drawn"])
def test_clients_and_pairs_are_included_equally_often(num_clients):
    cohort_size, num_rounds = num_clients // 3, 400
    here = np.ones(num_clients, dtype=bool)
    here[: num_clients // 4] = False  # those who are not there change nothing for the others
    joint = np.zeros((num_clients, num_clients))
    for t in range(num_rounds):
        cohort = Uniform(cohort_size).select(Candidates(lambda ids: here[ids], num_clients, t, 0))
        joint[np.ix_(cohort, cohort)] += 1
    assert not joint[~here].any()
    joint, n, m = joint[np.ix_(here, here)], int(here.sum()), cohort_size
    single, pair = m / n, m * (m - 1) / n / (n - 1)
    upper = joint[np.triu_indices(n, 1)]
    # Standardized counts have mean square 1, with a spread of sqrt(2 / n) over n clients; pairs that share a client vary
    # together, so theirs is no smaller.
    for counts, p in ((np.diag(joint), single), (upper, pair)):
        square = (counts - num_rounds * p) ** 2 / (num_rounds * p * (1 - p))
        assert abs(square.mean() - 1) < 5 * np.sqrt(2 / n)
        assert square.max() < 6**2


def test_cohorts_differ_by_round_and_seed_reproducibly():
    def cohort(round: int, seed: int) -> list[int]:
        return Uniform(5).select(Candidates(lambda ids: np.ones(len(ids), dtype=bool), 1000, round, seed)).tolist()

    assert cohort(3, 0) == cohort(3, 0)
    assert len({tuple(cohort(t, s)) for t in range(20) for s in range(5)}) == 100


def test_no_available_client():
    cohort = Uniform(5).select(Candidates(lambda ids: np.zeros(len(ids), dtype=bool), 3000, 0, 0))
    assert cohort.dtype == np.int64
    assert len(cohort) == 0


@pytest.mark.parametrize("num_clients", [200, 10**5, 10**7])
def test_one_query_suffices_under_full_availability(num_clients):
    asked = Asked(Everyone(), num_clients)
    for t in range(20):
        assert len(Uniform(20).select(Candidates(asked.at(t), num_clients, t, 0))) == 20
    assert asked.calls == 20
    assert asked.clients <= 20 * 40


def test_number_of_queried_clients_does_not_grow_with_the_population():
    num_rounds, cohort_size = 30, 100
    mean_asked = {}
    for num_clients in (10**3, 10**4, 10**5, 10**6, 10**7):
        asked = Asked(Markov(mean=0.1), num_clients)
        for t in range(num_rounds):
            Uniform(cohort_size).select(Candidates(asked.at(t), num_clients, t, 0))
        mean_asked[num_clients] = asked.clients / num_rounds
        assert asked.calls / num_rounds < 4
    # 100 / 0.1 = 1,000 are needed on average; a thousand clients are all there is.
    assert mean_asked[10**3] <= 1000
    assert max(mean_asked.values()) < 1.3 * min(mean_asked.values())
    assert max(mean_asked.values()) < 1400


def test_cohort_larger_than_the_federation_is_refused():
    with pytest.raises(ValueError, match=r"cohort_size: got 11, needed at most the number of clients, 10\. Write"):
        check_selection(Uniform(11), 10)
    check_selection(Uniform(10), 10)


@pytest.mark.parametrize("cohort_size", [0, -1, 2.5, True])
def test_empty_cohort_is_refused(cohort_size):
    with pytest.raises(ValueError, match=r"cohort_size: got .* needed a whole number >= 1"):
        Uniform(cohort_size)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(None, 6), (0.5, 3), (0.1, 1), (1.0, 6), (4, 4), (6, 6)],
)
@pytest.mark.parametrize("recipe", ["fedau", "fedprox", "ditto", "power_of_choice", "f3ast", "mifa", "fedadam", "moon"])
def test_recipes_take_numbers_and_shares_of_clients(recipe, size, expected):
    data = to.data.from_arrays(torch.rand(24, 3), torch.arange(24) % 2).split(to.partition.Iid(), num_clients=6)
    algorithm = getattr(to, recipe)(cohort_size=size)
    model = to.models.Mlp(hidden=(3,))
    result = to.Experiment(data=data, model=model, algorithm=algorithm, rounds=2).run()
    assert result.rounds["num_participants"].to_pylist() == [expected, expected]


@pytest.mark.parametrize("recipe", ALGORITHMS)
def test_every_recipe_takes_a_size_of_the_cohort(recipe):
    size = inspect.signature(ALGORITHMS[recipe]).parameters["cohort_size"]
    assert size.kind is inspect.Parameter.KEYWORD_ONLY
    assert size.default is None or size.default == 10


def test_default_size_fits_a_federation_with_fewer_clients_and_a_given_one_is_refused():
    data = to.data.from_arrays(torch.rand(24, 3), torch.arange(24) % 2).split(to.partition.Iid(), num_clients=6)
    run = to.Experiment(data=data, model=to.models.Logistic(), algorithm=to.ditto(), rounds=1)
    assert run.run().rounds["num_participants"].to_pylist() == [6]
    given = (
        r"cohort_size: got 10, needed at most the number of clients, 6\. Write cohort_size=6, or None for all clients"
    )
    with pytest.raises(to.ConfigurationError, match=given):
        replace(run, algorithm=to.ditto(cohort_size=10)).run()


@pytest.mark.parametrize("size", [0, -1, 1.5, 0.0, True, "all", float("nan")])
def test_other_sizes_are_refused(size):
    for kind in (Uniform, to.selection.WithReplacement, to.selection.ByGradientNorm):
        with pytest.raises(
            to.ConfigurationError, match=r"cohort_size: got .* needed a whole number >= 1.* None for all clients"
        ):
            kind(size)


def test_shares_and_everyone_are_enlarged():
    assert Uniform(0.5).enlarged(1.3).cohort_size == pytest.approx(0.65)
    assert Uniform(0.9).enlarged(1.3).cohort_size is None
    assert Uniform(None).enlarged(1.3).cohort_size is None
    assert check_selection(Uniform().enlarged(1.3), 12) is None
    assert Uniform(10).enlarged(1.3).cohort_size == 13
