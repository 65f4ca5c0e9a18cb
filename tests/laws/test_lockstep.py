"""Runs in lock-step leave no trace in each other."""

from dataclasses import replace

import pytest
import torch

from turnout import Experiment, Population, average_participating, data, fedavg, fedprox, mifa, models, scaffold
from turnout.data import partition
from turnout.pieces.selection import Uniform
from turnout.population.availability import Bernoulli
from turnout.simulation import Simulation, lockstep

from .recipes import CLIENTS, DEVICE, LOCAL, RATES, assert_independent_of_lanes, experiment, standard, trained

PRESENT = Population(Bernoulli(rates=RATES))
"""Clients without requirements, which are computed run by run."""


def rounds(simulation):
    """All rounds of a simulation, as steps."""
    for _ in range(simulation.experiment.rounds):
        yield from simulation.steps()
    simulation.finish()


@pytest.fixture
def cohorts(monkeypatch):
    """The clients of each call of `client_step` while runs are in lock-step."""
    seen, real = [], lockstep.client_step

    def spy(algorithm, task, memory, clients):
        seen.append(len(clients))
        return real(algorithm, task, memory, clients)

    monkeypatch.setattr(lockstep, "client_step", spy)
    return seen


@pytest.mark.parametrize("name", CLIENTS)
def test_a_second_seed_in_lockstep_changes_no_bit(name):
    run = standard(name, rounds=6, population=PRESENT)
    runs = run, replace(run, seed=run.seed + 1)
    joint = [Simulation(run) for run in runs]
    lockstep.together([rounds(one) for one in joint])
    for one, run in zip(joint, runs, strict=True):
        assert_independent_of_lanes(one, trained(run))


@pytest.mark.parametrize("local", [LOCAL, replace(LOCAL, steps=None, epochs=1), replace(LOCAL, sampling="fresh")])
def test_seeds_have_their_own_data_sizes_and_random_numbers(local, cohorts):
    """Clients of unequal sizes, dropout, and a run that ends before the other."""
    model = models.Mlp(hidden=(16,), dropout=0.3)

    def simulation(seed):
        split = data.digits().split(partition.Dirichlet(alpha=0.3), num_clients=12 + seed, seed=seed)
        algorithm = fedavg(local, also=(Uniform(5),))
        return Simulation(Experiment(split, model, algorithm, rounds=8 - 3 * seed, seed=seed, device=DEVICE))

    alone, joint = ([simulation(seed) for seed in (0, 1)] for _ in range(2))
    for one in alone:
        lockstep.together([rounds(one)])
    lockstep.together([rounds(one) for one in joint])
    assert cohorts == [10] * 5  # the longer run trains alone in its last rounds
    for one, other in zip(joint, alone, strict=True):
        assert_independent_of_lanes(one, other)


def test_rules_of_the_server_train_clients_together(cohorts):
    """Averaging and MIFA differ at the server alone; FedProx and SCAFFOLD have other local steps."""
    recipes = (average_participating, mifa, fedprox, scaffold)
    runs = [
        replace(experiment("fedavg", rounds=2, population=Population()), algorithm=recipe(LOCAL, also=(Uniform(3),)))
        for recipe in recipes
    ]
    lockstep.together([rounds(Simulation(run)) for run in runs])
    assert cohorts == [6, 6]


def test_lanes_of_several_runs_fit_the_memory_budget(cohorts):
    runs = [Simulation(replace(experiment("fedavg", rounds=2, population=Population()), seed=seed)) for seed in (0, 1)]
    for run in runs:
        run.workspace.lanes = 9  # each has 8 clients
    lockstep.together([rounds(run) for run in runs])
    assert cohorts == []


def test_an_error_of_one_run_ends_that_run_alone(monkeypatch):
    good, bad = (
        Simulation(replace(experiment("fedavg", rounds=3, population=Population()), seed=seed)) for seed in (0, 1)
    )

    def steps(simulation):
        try:
            yield from rounds(simulation)
        except ValueError as error:
            return str(error)

    def gather(_):
        raise ValueError("no memory of clients")

    monkeypatch.setattr(bad.memory, "gather", gather)
    assert lockstep.together([steps(good), steps(bad)]) == [None, "no memory of clients"]
    assert good.state.version == 3
    assert torch.isfinite(good.state.params).all()
