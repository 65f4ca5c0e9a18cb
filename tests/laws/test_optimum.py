"""Where methods end up on quadratics, for which every optimum is known: ``F_n(x) = ||x - c_n||^2 / 2``.

A client who does I steps of size gamma sends ``(1 - (1 - gamma)^I) (c_n - x)``, so a method's fixed point is the mean of
the c_n under the weight that each client has in the long run, which for the biased ones follows from the rates.
"""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from turnout import (
    Experiment,
    Population,
    Sgd,
    average_all,
    average_participating,
    compose,
    fedau,
    fedavg,
    fedvarp,
    known_statistics,
    mifa,
)
from turnout.base.server_step import server_step
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.pieces.weighting import DivideByClients, Participation
from turnout.population.availability import Bernoulli, Markov
from turnout.simulation import Simulation

from ..tiny import federation, report

RATES = np.array([0.9, 0.5, 0.2, 0.1])
TARGETS = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [4.0, -4.0]], dtype=torch.float64)
UNIFORM = TARGETS.mean(dim=0)
N, P = TARGETS.shape


def under(weights):
    """The optimum of the weighted objective."""
    return torch.from_numpy(weights / weights.sum()) @ TARGETS


def share_of_mean():
    """Return E[1{n available} / number available] of independent clients, by enumerating all 2^N cohorts."""
    share = np.zeros(N)
    for cohort in product([0, 1], repeat=N):
        there = np.array(cohort)
        if there.any():
            share += np.prod(np.where(there, RATES, 1 - RATES)) * there / there.sum()
    return share


def capped(cutoff):
    """The weight that FedAU gives a client in the long run: p_n times its mean interval cut off at K."""
    return 1 - (1 - RATES) ** cutoff


METHODS = {
    "fedau": (fedau(cutoff=None), UNIFORM),
    "fedau, K = 50": (fedau(cutoff=50), under(capped(50))),
    "fedau, K = 3": (fedau(cutoff=3), under(capped(3))),
    "fedau that forgets": (
        compose(Participation(None, average="exponential", rate=0.02), DivideByClients()),
        UNIFORM,
    ),
    "known_statistics": (known_statistics(rates=tuple(RATES)), UNIFORM),
    "fedvarp": (fedvarp(), UNIFORM),
    "mifa": (mifa(), UNIFORM),
    "average_participating": (average_participating(), under(share_of_mean())),
    "average_all": (average_all(), under(RATES)),
    "fedavg": (fedavg(), under(share_of_mean())),
}


def long_run_mean(algorithm, there, contraction=0.05):
    """Mean of x over the second half of the rounds."""
    known = federation(N, P)
    state, total = algorithm.init(torch.zeros(P, dtype=torch.float64), known), torch.zeros(P, dtype=torch.float64)
    for t, present in enumerate(there):
        clients = np.flatnonzero(present)
        state, _ = server_step(
            algorithm, state, report(clients, contraction * (TARGETS[clients] - state.params)), known
        )
        total += state.params if t >= len(there) // 2 else 0.0
    return total / (len(there) - len(there) // 2)


@pytest.mark.parametrize("name", METHODS)
def test_training_converges_to_the_optimum_of_the_weights(name):
    algorithm, optimum = METHODS[name]
    there = np.random.default_rng(0).random((1600 if "forgets" in name else 1000, N)) < RATES
    found = long_run_mean(algorithm, there)
    assert (found - optimum).norm() < (1e-6 if name in ("fedvarp", "mifa") else 0.15)
    biased = (optimum - UNIFORM).norm() > 0.3
    assert biased == (name in ("fedau, K = 3", "average_participating", "average_all", "fedavg"))
    assert ((found - UNIFORM).norm() > 0.3) == biased


def test_fedau_is_unbiased_for_dependent_participation():
    """Markovian and cyclic participation lead to the same optimum."""
    bound = Markov(rates=tuple(RATES), join=0.2).bind(N, seed=4)
    markov = np.array([bound.available(np.arange(N), t) for t in range(1000)])
    cycles = (np.arange(400)[:, None] + np.array([0, 3, 5, 7])) % 10 < np.rint(10 * RATES)
    for there in (markov, cycles):
        assert (long_run_mean(fedau(cutoff=None), there) - UNIFORM).norm() < 0.2
        assert (long_run_mean(average_all(), there) - UNIFORM).norm() > 0.8


def half_square(outputs, targets):
    return (outputs - targets) ** 2 / 2


class Mean(nn.Module):
    """Predicts one number, whatever the input."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.w.expand(len(x))


def test_end_to_end_on_regression():
    """The same through the whole simulation, with targets that are no labels: client n holds the number n^2 - 4."""
    targets = torch.arange(N).double() ** 2 - 4
    shards = Shards(torch.zeros(4 * N, 1), targets.repeat_interleave(4).float(), np.arange(0, 4 * N + 1, 4))
    data = FederatedData("numbers", shards)
    ends = {}
    for algorithm in (fedau(Sgd(lr=0.1, steps=1), cutoff=None), average_all(Sgd(lr=0.1, steps=1))):
        population = Population(Bernoulli(rates=tuple(RATES)))
        run = Experiment(data, Mean(), algorithm, population, rounds=250, evaluate_every=250, loss=half_square, seed=2)
        simulation, values = Simulation(run), []
        for _ in range(run.rounds):
            simulation.round()
            values.append(float(simulation.state.params))
        ends[algorithm.name] = np.mean(values[60:])
        assert "train_accuracy" not in simulation.evaluate()
        assert simulation.evaluate()["train_loss"] == pytest.approx(
            float(((simulation.state.params - targets) ** 2).mean() / 2), rel=1e-5
        )
    assert ends["fedau"] == pytest.approx(float(targets.mean()), abs=0.4)
    assert ends["average_all"] == pytest.approx(float(RATES @ targets.numpy() / RATES.sum()), abs=0.4)
