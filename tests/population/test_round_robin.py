"""Clients that take turns."""

import numpy as np
import pytest

from turnout.population.availability import RoundRobin


def path(pattern, num_clients, num_rounds, seed=0, labels=None):
    bound = pattern.bind(num_clients, labels, seed)
    return np.stack([bound.available(np.arange(num_clients), t) for t in range(num_rounds)])


@pytest.mark.parametrize(
    ("size", "overlap", "stay"), [(10, 0.0, 0), (10, 0.3, 3), (10, 1.0, 9), (4, 0.5, 2), (1, 1.0, 0)]
)
def test_each_round_has_its_size_and_shares_clients_with_the_one_before(size, overlap, stay):
    here = path(RoundRobin(size, overlap), 60, 130)
    np.testing.assert_array_equal(here.sum(axis=1), size)
    np.testing.assert_array_equal((here[1:] & here[:-1]).sum(axis=1), stay)


def test_everybody_has_a_turn_before_anybody_has_a_second():
    here = path(RoundRobin(5), 20, 8)
    np.testing.assert_array_equal(here[:4].sum(axis=0), 1)
    np.testing.assert_array_equal(here[:4], here[4:])


@pytest.mark.parametrize(
    ("num_clients", "size", "overlap"), [(10, 3, 0.4), (10, 7, 0.5), (12, 5, 0.2), (9, 9, 0.5), (7, 2, 0)]
)
def test_realized_rates_equal_declared_rates(num_clients, size, overlap):
    bound = RoundRobin(size, overlap).bind(num_clients)
    here = path(RoundRobin(size, overlap), num_clients, num_clients)
    np.testing.assert_allclose(here.mean(axis=0), bound.rates, atol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        bound.rates[0] = 0.5


def test_order_by_labels_puts_similar_clients_into_one_round():
    labels = np.eye(2, dtype=int)[np.arange(20) % 2] * 5
    here = path(RoundRobin(10, correlated_with_labels=(1.0, 0.1)), 20, 2, labels=labels)
    assert {tuple(np.flatnonzero(row) % 2) for row in here} == {(0,) * 10, (1,) * 10}
    with pytest.raises(ValueError, match="needs the class counts of every client"):
        RoundRobin(correlated_with_labels=0.1).bind(20)


def test_seeds_give_different_orders_and_clients_may_be_asked_in_any_order():
    assert (path(RoundRobin(10), 60, 6, 0) != path(RoundRobin(10), 60, 6, 1)).any()
    bound, order = RoundRobin(10).bind(60), np.array([5, 1, 5, 59])
    np.testing.assert_array_equal(bound.available(order, 7), bound.available(np.arange(60), 7)[order])


def test_invalid_options_are_refused():
    with pytest.raises(ValueError, match="size: got 30, needed at most the number of clients, 20"):
        RoundRobin(30).bind(20)
    with pytest.raises(ValueError, match="size: got 0"):
        RoundRobin(0)
    with pytest.raises(ValueError, match="overlap"):
        RoundRobin(overlap=1.2)
