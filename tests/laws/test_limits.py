"""Every method is a known one at a known limit."""

import numpy as np
import pytest
import torch

from turnout import (
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
from turnout.pieces.local import Prox
from turnout.pieces.weighting import DivideByClients, Participation
from turnout.population.availability import Everyone

from ..tiny import federation, presence, report
from .recipes import LOCAL, N, experiment, trained

P = 6
EQUAL_FOR_EVERYONE = {
    "average_all": average_all(),
    "known_statistics": known_statistics(rates=(1.0,) * N),
    "known_statistics of the population": known_statistics(),
    "fedavg of equal sizes": fedavg(),
    "fedvarp": fedvarp(),
    "mifa": mifa(),
    **{f"fedau, K = {cutoff}": fedau(cutoff=cutoff) for cutoff in (1, 3, 50, None)},
    "fedau that forgets": compose(Participation(average="exponential"), DivideByClients()),
    "fedau in groups": compose(Participation(groups=(0, 0, 1, 1, 1, 2, 2, 2)), DivideByClients()),
}


def step_all(algorithm, reports, rates=None):
    """Parameters after every report, and the weights that were used."""
    known = federation(N, P, rates)
    state, params, weights = algorithm.init(torch.zeros(P, dtype=torch.float64), known), [], []
    for one in reports:
        state, info = server_step(algorithm, state, one, known)
        params.append(state.params)
        weights.append(info["weights"])
    return torch.stack(params), weights


def random_reports(there, seed=0):
    rng = np.random.default_rng(seed)
    cohorts = [np.flatnonzero(row) for row in there]
    return [report(c, torch.from_numpy(rng.normal(size=(len(c), P)))) for c in cohorts]


@pytest.mark.parametrize("name", EQUAL_FOR_EVERYONE)
def test_with_everyone_present_every_method_is_the_plain_mean(name):
    reports = random_reports(np.ones((30, N), dtype=bool))
    expected = torch.stack([one.updates.gathered().mean(dim=0) for one in reports]).cumsum(dim=0)
    params, weights = step_all(EQUAL_FOR_EVERYONE[name], reports, rates=[1.0] * N)
    torch.testing.assert_close(params, expected, rtol=0, atol=1e-12)
    if name.startswith("fedau"):
        assert all((w == 1 / N).all() for w in weights)


def test_runs_with_everyone_present_are_the_plain_mean():
    everyone = Population(Everyone())
    mean = trained(experiment("average_participating", population=everyone, rounds=4)).state.params
    for name in ("average_all", "fedau", "fedau without cutoff", "fedvarp", "mifa"):
        run = experiment(name, population=everyone, rounds=4)
        if name == "fedau without cutoff":  # which the table has with another server_lr
            run = type(run)(**{**vars(run), "algorithm": fedau(LOCAL, cutoff=None)})
        torch.testing.assert_close(trained(run).state.params, mean, rtol=1e-5, atol=1e-6)


def test_fedau_with_cutoff_1_is_average_all():
    reports = random_reports(presence(60, N, seed=1))
    one, weights = step_all(fedau(cutoff=1), reports)
    other, _ = step_all(average_all(), reports)
    assert torch.equal(one, other)
    assert all((w == 1 / N).all() for w in weights)


def test_fedau_weighs_clients_present_every_kth_round_by_k():
    there = np.zeros((60, N), dtype=bool)
    for k in range(1, N + 1):
        there[k - 1 :: k, k - 1] = True
    _, weights = step_all(fedau(cutoff=None), random_reports(there))
    present = np.flatnonzero(there[59])
    np.testing.assert_array_equal(weights[59].numpy() * N, present + 1)


def test_fedvarp_and_mifa_use_stored_updates_of_absent_clients():
    """Once every client has sent its update, sending it again does not change the direction."""
    updates = torch.from_numpy(np.random.default_rng(5).normal(size=(N, P)))
    reports = [report(c, updates[c]) for c in ([0, 1, 2, 3, 4, 5, 6, 7], [2, 5], [7], [0, 1, 2])]
    for algorithm in (fedvarp(), mifa()):
        params, _ = step_all(algorithm, reports)
        expected = updates.mean(dim=0) * torch.arange(1, 5)[:, None]
        torch.testing.assert_close(params, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_prox_with_mu_0_changes_no_bit(engine):
    plain = trained(experiment("fedau", engine=engine, rounds=4))
    run = experiment("fedau", engine=engine, rounds=4)
    prox = trained(type(run)(**{**vars(run), "algorithm": fedau(LOCAL, cutoff=3, also=(Prox(mu=0.0),))}))
    assert torch.equal(plain.state.params, prox.state.params)


def test_one_full_batch_step_of_everyone_is_gradient_descent():
    """FedAvg by examples of one step on all data: ``x - eta gamma grad f(x)`` on the pooled examples."""
    local = Sgd(lr=0.5, steps=1, batch_size=64)
    run = experiment("fedavg", local=local, population=Population(Everyone()), rounds=1)
    simulation = trained(run)
    module = run.build_model()
    data = run.data.train
    torch.nn.functional.cross_entropy(module(data.x), data.y).backward()
    moved = [p.detach() - 0.5 * p.grad for p in module.parameters() if p.grad is not None]
    torch.testing.assert_close(simulation.state.params, torch.cat([p.reshape(-1) for p in moved]), rtol=1e-5, atol=1e-6)


def test_average_all_is_average_participating_times_the_share_of_the_cohort():
    """``(B / N)`` times the mean of the participants is the mean of all, absent ones counting zero."""
    reports = random_reports(presence(20, N, seed=2))
    shares = torch.tensor([len(one) / N for one in reports], dtype=torch.float64)
    steps = [torch.diff(step_all(a, reports)[0], dim=0, prepend=torch.zeros(1, P, dtype=torch.float64))
             for a in (average_participating(), average_all())]  # fmt: skip
    torch.testing.assert_close(steps[0] * shares[:, None], steps[1], rtol=0, atol=1e-12)
