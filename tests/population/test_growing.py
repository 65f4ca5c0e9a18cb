"""Populations that grow and shrink."""

import numpy as np
import pytest

import turnout as to
from turnout.population.availability import Arrivals, Bernoulli, Departures

from ..tiny import classification


def path(pattern, num_clients, num_rounds, seed=0):
    bound = pattern.bind(num_clients, None, seed)
    return np.stack([bound.available(np.arange(num_clients), t) for t in range(num_rounds)])


def test_clients_arrive_once_and_stay():
    here = path(Arrivals(mean=1.0, initial=0.3, first=10, last=60), 4000, 80)
    assert (here[1:] >= here[:-1]).all()
    share = here.mean(axis=1)
    np.testing.assert_allclose(share[:10], 0.3, atol=0.03)
    np.testing.assert_allclose(share[10:60], 0.3 + 0.7 * (np.arange(10, 60) - 9) / 50, atol=0.03)
    assert here[59:].all()


def test_clients_leave_once_and_for_good():
    here = path(Departures(mean=1.0, remaining=0.2, first=5, last=45), 4000, 60)
    assert (here[1:] <= here[:-1]).all()
    share = here.mean(axis=1)
    np.testing.assert_array_equal(share[:5], 1.0)
    np.testing.assert_allclose(share[5:45], 1 - 0.8 * (np.arange(5, 45) - 4) / 40, atol=0.03)
    np.testing.assert_allclose(share[45:], 0.2, atol=0.03)


@pytest.mark.parametrize("pattern", [Arrivals(mean=0.4, initial=1.0), Departures(mean=0.4, remaining=1.0)])
def test_population_that_does_not_change_is_bernoulli(pattern):
    np.testing.assert_array_equal(path(pattern, 300, 50, seed=4), path(Bernoulli(mean=0.4), 300, 50, seed=4))


def test_clients_that_are_there_are_available_at_their_rates():
    rates = tuple(np.linspace(0.1, 0.9, 9))
    here = path(Arrivals(rates=rates, initial=0.0, last=20), 9, 6000)[20:]
    np.testing.assert_allclose(here.mean(axis=0), rates, atol=0.03)
    assert Arrivals(rates=rates).bind(9).rates == pytest.approx(rates)
    assert Departures(rates=rates).bind(9).rates is None


@pytest.mark.parametrize("kind", [Arrivals, Departures])
def test_results_depend_on_seed_client_and_round_alone(kind):
    few, many = kind().bind(50, None, 3), kind().bind(10**5, None, 3)
    order = np.array([7, 3, 7, 49])
    for t in (0, 30, 99, 10**9):
        np.testing.assert_array_equal(few.available(np.arange(50), t), many.available(np.arange(50), t))
        np.testing.assert_array_equal(few.available(order, t), many.available(np.arange(50), t)[order])
    assert (path(kind(), 500, 60, 0) != path(kind(), 500, 60, 1)).mean() > 0.05


@pytest.mark.parametrize("kind", [Arrivals, Departures])
def test_empty_windows_are_refused(kind):
    with pytest.raises(ValueError, match=r"last: got 5, needed more than first \(5\): write last=105"):
        kind(first=5, last=5)
    with pytest.raises(ValueError, match="first: got -1, needed a whole number >= 0"):
        kind(first=-1)
    with pytest.raises(ValueError, match=r"initial|remaining"):
        kind(**{"initial" if kind is Arrivals else "remaining": 1.5})


def test_federation_trains_while_it_grows():
    experiment = to.Experiment(
        classification(), to.models.Logistic(), to.fedau(to.Sgd(lr=0.1, steps=1)),
        to.Population(Arrivals(mean=1.0, initial=0.2, first=2, last=12)), rounds=20, evaluate_every=20,
    )  # fmt: skip
    sizes = experiment.run().rounds["num_participants"].to_pylist()
    assert sizes == sorted(sizes)
    assert sizes[0] < 8
    assert sizes[-1] == 8
