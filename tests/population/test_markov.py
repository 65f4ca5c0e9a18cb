"""The law of the Markov pattern, though any round is answered at once.

Transitions of independent clients are binomial, so every frequency is held against 4.5 standard deviations.
"""

import numpy as np
import pytest

from turnout.population.availability import Diurnal, Markov, markov

N = 100_000
JOIN = 0.05
RATES = [0.02, 0.04, 0.0476, 0.049, 0.1, 0.5, 0.98]


def transitions(p: float, join: float = JOIN) -> tuple[float, float]:
    """p01 and p10 as the paper's authors compute them."""
    p01, p10 = join, join * (1 / p - 1)
    return (p01 / p10, 1.0) if p10 > 1 else (p01, p10)


def assert_frequency(hits: np.ndarray, p: float) -> None:
    assert len(hits) > 500
    assert hits.mean() == pytest.approx(p, abs=4.5 * np.sqrt(p * (1 - p) / len(hits)) + 1e-12)


@pytest.fixture(params=RATES, ids=lambda p: f"p={p}")
def p(request) -> float:
    return request.param


@pytest.fixture
def chain(p: float):
    bound = Markov(mean=p).bind(N, None, 7)
    return lambda t: bound.available(np.arange(N), t)


def test_cases_cover_correlations_of_both_signs_and_the_cap():
    signs = {np.sign(1 - sum(transitions(p))) for p in RATES}
    assert signs == {-1, 1}
    assert {transitions(p)[1] == 1.0 for p in RATES} == {True, False}


@pytest.mark.parametrize("t", [0, 1, 13, 10**6])
def test_stationary_from_the_first_round(chain, p, t):
    assert_frequency(chain(t), p)


@pytest.mark.parametrize("t", [0, 18, 19, 10**6 + 1])
def test_transition_frequencies_equal_probabilities(chain, p, t):
    p01, p10 = transitions(p)
    now, then = chain(t), chain(t + 1)
    assert_frequency(then[~now], p01)
    assert_frequency(~then[now], p10)


@pytest.mark.parametrize("lag", [2, 3, 10, 60])
def test_transition_frequencies_over_several_rounds(chain, p, lag):
    p01, p10 = transitions(p)
    matrix = np.linalg.matrix_power([[1 - p01, p01], [p10, 1 - p10]], lag)
    now, then = chain(5), chain(5 + lag)
    assert_frequency(then[~now], matrix[0, 1])
    assert_frequency(then[now], matrix[1, 1])


def test_process_is_markovian(chain, p):
    p01, p10 = transitions(p)
    before, now, after = chain(30), chain(31), chain(32)
    for past in (before, ~before):
        if (~now & past).sum() > 500:
            assert_frequency(after[~now & past], p01)
        if (now & past).sum() > 500:
            assert_frequency(~after[now & past], p10)


def test_transition_frequencies_of_few_clients_over_many_rounds(p):
    bound = Markov(mean=p).bind(200, None, 3)
    path = np.stack([bound.available(np.arange(200), t) for t in range(500)])
    p01, p10 = transitions(p)
    assert_frequency(path[1:][~path[:-1]], p01)
    assert_frequency(~path[1:][path[:-1]], p10)


def test_clients_are_independent(chain, p):
    here, later = chain(40), chain(41)
    assert_frequency(here[::2] & here[1::2], p**2)
    assert_frequency(here[::2] & later[1::2], p**2)
    assert_frequency(later[::2] & here[1::2], p**2)


def test_distant_rounds_are_independent(chain, p):
    assert_frequency(chain(3) & chain(3 + 10**5), p**2)


@pytest.mark.parametrize("join", [1e-6, 0.05, 0.9, 1 - 1e-6])
def test_rates_of_zero_and_one_are_constant(join):
    bound = Markov(rates=(0.0, 1.0, 5e-324), join=join).bind(3, None, 0)
    for t in (0, 1, 2, 999, 10**9):
        np.testing.assert_array_equal(bound.available(np.arange(3), t), [False, True, False])


def test_zero_correlation_is_bernoulli():
    bound = Markov(mean=0.25, join=0.25).bind(N, None, 0)
    here, later = bound.available(np.arange(N), 8), bound.available(np.arange(N), 9)
    assert_frequency(here, 0.25)
    assert_frequency(later[here], 0.25)


@pytest.mark.parametrize(("p", "join"), [(0.5, 0.999), (0.9, 1 - 1e-6), (0.3, 1e-4)])
def test_extreme_join_probabilities_have_the_right_transitions(p, join):
    bound = Markov(mean=p, join=join).bind(N, None, 2)
    now, then = bound.available(np.arange(N), 77), bound.available(np.arange(N), 78)
    p01, p10 = transitions(p, join)
    assert_frequency(now, p)
    assert_frequency(then[~now], p01)
    assert_frequency(~then[now], p10)


def test_clients_with_different_rates_are_independent():
    rates = (0.02, 0.1, 0.5, 0.98)
    mixed = Markov(rates=rates).bind(4, None, 9)
    for client, rate in enumerate(rates):
        alone = Markov(mean=rate).bind(4, None, 9)
        for t in range(50):
            assert mixed.available(np.arange(4), t)[client] == alone.available(np.array([client]), t)[0]


@pytest.fixture
def evaluations(monkeypatch):
    """How many random numbers the pattern has drawn."""
    drawn = [0]
    fold = markov.fold

    def counted(key, *parts):
        drawn[0] += max(np.size(part) for part in parts)
        return fold(key, *parts)

    monkeypatch.setattr(markov, "fold", counted)
    return drawn


def test_cost_does_not_depend_on_the_number_of_clients(evaluations):
    costs = []
    for num_clients in (10**4, 10**5, 10**7):
        evaluations[0] = 0
        Markov().bind(num_clients, None, 0).available(np.arange(1000), 123)
        costs.append(evaluations[0])
    assert costs[0] == costs[1] == costs[2]


@pytest.mark.parametrize("join", [1e-6, 0.05, 1 - 1e-6])
@pytest.mark.parametrize("rate", [1e-6, 0.02, 0.0475, 0.1, 0.5, 0.98, 1 - 1e-6])
def test_query_takes_few_draws_for_any_chain_and_round(evaluations, rate, join):
    bound = Markov(mean=rate, join=join).bind(2000, None, 0)
    for t in (0, 999, 10**9):
        evaluations[0] = 0
        bound.available(np.arange(2000), t)
        assert evaluations[0] / 2000 < 8


@pytest.mark.parametrize("join", [0.0, 1.0, -0.1, 2.0, 1e-9, float("nan"), 1, True, "0.05"])
def test_invalid_join_is_refused(join):
    with pytest.raises(ValueError, match=r"join: got .* needed a probability between 1e-06 and 1 - 1e-06"):
        Markov(join=join)


def test_next_rounds_of_all_clients_are_drawn_at_once(evaluations):
    bound, everyone = Markov().bind(100, None, 0), np.arange(100)
    bound.available(everyone, 64)
    evaluations[0] = 0
    for t in range(65, 128):
        bound.available(everyone, t)
    assert evaluations[0] == 0
    bound.available(everyone, 128)
    assert evaluations[0] > 0


@pytest.mark.parametrize("pattern", [Markov(mean=0.1), Markov(mean=0.04), Diurnal()])
@pytest.mark.parametrize("num_clients", [1, 3, 100, 5000, 9000])
def test_remembered_rounds_are_those_of_single_clients(pattern, num_clients):
    bound = pattern.bind(num_clients, None, 3)
    clients = np.random.default_rng(0).permutation(num_clients).repeat(2)
    for t in (0, 63, 64, 5, 10**12, 6, 200):
        found = bound.available(clients, t)
        alone = [
            bool(pattern.bind(num_clients, None, 3).available(clients[[i]], t)[0])
            for i in range(0, 12, 2)
            if i < len(clients)
        ]
        assert found[: 2 * len(alone) : 2].tolist() == found[1 : 2 * len(alone) : 2].tolist() == alone
