"""Every recipe compared with NumPy in float64, with the same minibatches."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from turnout import ALGORITHMS, Experiment, Population, Sgd, fedau
from turnout.core.schedule import Halving
from turnout.pieces.local import Prox
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from ..phases import next_cohort
from ..tiny import classification, presence
from . import asynchronous, cached, folb, maxfl, optimizers, personal, rules
from .shuffles import client_key, endless

N, T, CLASSES, FEATURES = 8, 16, 3, 4
P = CLASSES * (FEATURES + 1)
RATES = tuple(np.linspace(0.15, 0.9, N))
DATA = classification(features=FEATURES, classes=CLASSES, dtype=torch.float64)
SIZES = DATA.train.sizes
SEED = 3

ORACLES = {
    "fedavg": lambda: rules.fedavg(SIZES),
    "fedau": lambda: rules.fedau(N, cutoff=6),
    "average_participating": rules.average_participating,
    "average_all": lambda: rules.average_all(N),
    "known_statistics": lambda: rules.known_statistics(RATES),
    "fedvarp": lambda: rules.fedvarp(N, P),
    "mifa": lambda: rules.mifa(N, P),
    "fedstale": lambda: rules.fedstale(N, P, 0.7, p=RATES),
}
OPTIONS = {"fedau": {"cutoff": 6}, "known_statistics": {"rates": RATES}, "fedstale": {"rates": RATES, "beta": 0.7}}


def test_every_recipe_has_an_oracle():
    elsewhere = folb.METHODS.keys() | personal.METHODS.keys() | maxfl.METHODS.keys()
    elsewhere |= asynchronous.METHODS.keys() | optimizers.METHODS.keys()
    elsewhere |= cached.METHODS.keys() | {"rennala", "ringmaster"}
    elsewhere |= {
        "fedawe",
        "focus",
        "moon",
        "fedala",
        "pfedme",
        "apfl",
        "feddyn",
        "power_of_choice",
        "oort",
        "fedbn",
        "diloco",
        "amplified_fedavg",
        "amplified_scaffold",
        "fedlaavg",
        "f3ast",
        "fedex_lora",
        "flora",
        "flexlora",
        "hetlora",
        "raflora",
        "local",
        "centralized",
    }  # all of these in tests of their own
    assert ORACLES.keys() | elsewhere == ALGORITHMS.keys()


def model():
    linear = nn.Linear(FEATURES, CLASSES).double()
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.copy_(torch.linspace(-0.3, 0.4, parameter.numel()).reshape(parameter.shape))
    return linear


def ours(algorithm, present, engine):
    """Parameters after every round ``[T, P]``."""
    rows = tuple((int(n), int(t), int(t) + 1) for t, n in zip(*np.nonzero(present), strict=True))
    population = Population(Trace(rows, rounds=T))
    experiment = Experiment(DATA, model(), algorithm, population, rounds=T, seed=SEED, evaluate_every=T, engine=engine)
    simulation = Simulation(experiment)
    found = []
    for t in range(T):
        assert list(next_cohort(simulation)) == list(np.flatnonzero(present[t]))
        simulation.round()
        found.append(simulation.state.params.numpy().copy())
    return np.array(found)


def theirs(rule, present, lr, steps, batch_size, server_lr=1.0, **local):
    """The same from plain NumPy; `lr` is a function of the round."""
    w = np.concatenate([p.detach().numpy().ravel() for p in model().parameters()])
    batches = [endless(int(SIZES[n]), client_key(SEED, n), batch_size, drop_last=True) for n in range(N)]

    def gradient(w, x, y):
        return rules.softmax_gradient(w, x, y, CLASSES)

    found = []
    for t in range(T):
        D = {}
        for n in np.flatnonzero(present[t]):
            x, y = (part.numpy() for part in DATA.train.client(int(n)))
            minibatches = [(x[rows], y[rows]) for rows in islice(batches[n], steps)]
            D[n] = rules.local_sgd(w, minibatches, gradient, lr(t), **local)
        w = w + server_lr * rule(D)
        found.append(w)
    return np.array(found)


@pytest.mark.parametrize("name", ORACLES)
def test_recipe_equals_its_transcription(name):
    for seed, engine in enumerate(("vectorized", "one_by_one"), start=1):
        present = presence(T, N, seed)
        assert (~present.any(axis=1)).any()
        local = Sgd(lr=0.2, steps=3, batch_size=16)
        algorithm = ALGORITHMS[name](local, server_lr=1.3, **OPTIONS.get(name, {}))
        expected = theirs(ORACLES[name](), present, lambda _: 0.2, 3, 16, server_lr=1.3)
        np.testing.assert_allclose(ours(algorithm, present, engine), expected, rtol=0, atol=1e-9)
        assert np.abs(expected[-1] - expected[0]).max() > 0.1  # it went somewhere


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_amplified_fedavg_equals_its_transcription(engine):
    present, period = presence(T, N, seed=5), 6
    assert not present[period - 1 :: period].any(axis=1).all()  # a period that ends with nobody there
    algorithm = ALGORITHMS["amplified_fedavg"](Sgd(lr=0.2, steps=3, batch_size=16), period=period, gamma=1.7)
    expected = theirs(rules.amplified_fedavg(period, 1.7), present, lambda _: 0.2, 3, 16)
    np.testing.assert_allclose(ours(algorithm, present, engine), expected, rtol=0, atol=1e-9)


def test_amplified_fedavg_without_amplification_or_in_periods_of_one_round_is_a_plain_mean():
    present, local = presence(T, N, seed=4), Sgd(lr=0.2, steps=3, batch_size=16)
    plain = ours(ALGORITHMS["average_participating"](local), present, "vectorized")
    alike = ours(ALGORITHMS["amplified_fedavg"](local, period=5, gamma=1.0), present, "vectorized")
    np.testing.assert_allclose(alike, plain, rtol=0, atol=1e-12)
    faster = ours(ALGORITHMS["average_participating"](local, server_lr=1.4), present, "vectorized")
    alike = ours(ALGORITHMS["amplified_fedavg"](local, period=1, gamma=1.4), present, "vectorized")
    np.testing.assert_allclose(alike, faster, rtol=0, atol=1e-12)


def test_fedstale_with_rates_learned_by_fedau():
    present = presence(T, N, seed=2)
    local = Sgd(lr=0.2, steps=3, batch_size=16)
    algorithm = ALGORITHMS["fedstale"](local, beta=0.4, learns_rates=True, cutoff=6)
    expected = theirs(rules.fedstale(N, P, 0.4, cutoff=6), present, lambda _: 0.2, 3, 16)
    np.testing.assert_allclose(ours(algorithm, present, "vectorized"), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("learns_rates", [False, True])
def test_fedstale_with_example_shares_equals_the_authors_code(learns_rates):
    present, alpha = presence(T, N, seed=6), SIZES / SIZES.sum()
    local = Sgd(lr=0.2, steps=3, batch_size=16)
    options = {"learns_rates": True, "cutoff": 6} if learns_rates else {"rates": RATES}
    algorithm = ALGORITHMS["fedstale"](local, beta=0.4, shares=tuple(alpha), **options)
    oracle = rules.fedstale(N, P, 0.4, None if learns_rates else RATES, 6, alpha)
    expected = theirs(oracle, present, lambda _: 0.2, 3, 16)
    np.testing.assert_allclose(ours(algorithm, present, "vectorized"), expected, rtol=0, atol=1e-9)


def test_fedstale_without_stale_updates_equals_fedavg_with_true_rates():
    present, local = presence(T, N, seed=4), Sgd(lr=0.2, steps=3, batch_size=16)
    unbiased = ours(ALGORITHMS["known_statistics"](local, rates=RATES), present, "vectorized")
    fresh = ours(ALGORITHMS["fedstale"](local, beta=0.0, rates=RATES), present, "vectorized")
    np.testing.assert_allclose(fresh, unbiased, rtol=0, atol=1e-12)


def test_momentum_weight_decay_prox_and_schedule_equal_their_transcription():
    present = presence(T, N, seed=5)
    local = Sgd(lr=Halving(0.3, start=7, every=10, most=2), steps=4, batch_size=10, momentum=0.7, weight_decay=0.05)
    algorithm = fedau(local, cutoff=6, also=(Prox(mu=0.4),))

    def lr(t):
        return 0.3 if t < 7 else 0.15 if t < 17 else 0.075

    expected = theirs(ORACLES["fedau"](), present, lr, 4, 10, momentum=0.7, weight_decay=0.05, mu=0.4)
    np.testing.assert_allclose(ours(algorithm, present, "vectorized"), expected, rtol=0, atol=1e-9)
