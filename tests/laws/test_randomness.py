"""All randomness is a function of (seed, version, client)."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import Experiment, Population, Sgd, fedau, models
from turnout.base.server_step import server_step
from turnout.core.schedule import Halving
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.pieces.server_optimizer.sgd import ServerSgd
from turnout.population.availability import Trace
from turnout.simulation import Simulation

from ..phases import measure, next_cohort, train
from ..tiny import classification
from .recipes import COVERING, PLAIN, SOME, N, assert_same_bits, baseline, experiment, standard, tables, trained

DROPOUT = models.Mlp(hidden=(16,), dropout=0.5)


@pytest.mark.parametrize("name", SOME)
def test_different_seeds_differ(name):
    """Runs of equal seeds are compared where they also differ in the number of lanes, in test_engines."""
    one, other = baseline(name), trained(standard(name, seed=1))
    assert not torch.equal(one.state.params, other.state.params)
    assert not tables(one)["participation"].equals(tables(other)["participation"])


def test_generator_of_torch_is_neither_used_nor_advanced():
    torch.manual_seed(1)
    one = trained(experiment("fedau", rounds=3, model=DROPOUT))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    other = trained(experiment("fedau", rounds=3, model=DROPOUT))
    assert torch.equal(torch.get_rng_state(), before)
    assert_same_bits(one, other)


@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_dropout_of_a_client_does_not_depend_on_lanes(engine):
    run = experiment("fedau", rounds=3, model=DROPOUT, engine=engine)
    everyone, ones, threes = (trained(run, lanes) for lanes in (N, 1, 3))
    assert_same_bits(ones, everyone)
    assert_same_bits(threes, everyone)
    without = trained(experiment("fedau", rounds=3, engine=engine))
    assert not torch.equal(everyone.state.params, without.state.params)


def test_engines_drop_the_same_units():
    one, other = (trained(experiment("fedau", model=DROPOUT, engine=e)) for e in ("vectorized", "one_by_one"))
    assert (one.state.params - other.state.params).norm() < 1e-5 * other.state.params.norm()


def test_clients_and_rounds_have_their_own_minibatches_and_masks():
    """Clients hold the same data, so that only randomness distinguishes them."""
    data = classification(sizes=(40,))
    both = Shards(data.train.x.repeat(2, 1), data.train.y.repeat(2), np.array([0, 40, 80]))
    twins = FederatedData("twins", both, data.num_classes)
    local = Sgd(lr=0.1, steps=1, batch_size=40, sampling="fresh")  # the whole data, so minibatches differ in order only
    simulation = Simulation(Experiment(twins, DROPOUT, fedau(local)))
    first = train(simulation, np.array([0, 1])).delta
    assert (first[0] - first[1]).norm() > 0.1 * first[0].norm()
    simulation.server.state = replace(simulation.state, version=1)
    second = train(simulation, np.array([0, 1])).delta
    assert (first - second).norm(dim=1).min() > 0.1 * first[0].norm()


def test_update_depends_on_the_round_not_on_earlier_cohorts():
    """Earlier rounds of other clients do not change a client's random draws."""

    def last(rows):
        population = Population(Trace(rows))
        run = experiment("average_all", rounds=3, model=DROPOUT, population=population, local=Sgd(lr=0.1, steps=2))
        simulation = Simulation(run)
        simulation.server.state = replace(simulation.state, version=2)
        assert next_cohort(simulation)[0] == 0
        return train(simulation, next_cohort(simulation)).delta[0]

    assert torch.equal(last(((0, 2, 3),)), last(((0, 2, 3), (1, 0, 3), (5, 2, 3))))


@pytest.mark.parametrize("name", [name for name in COVERING if name not in PLAIN])
def test_server_lr_scales_the_step(name):
    """From the same state, a server step is proportional to server_lr."""
    simulation = Simulation(experiment(name))
    report = replace(train(simulation, np.arange(4)), measured=measure(simulation))
    algorithm, start = simulation.experiment.algorithm, simulation.state.params
    steps = []
    for eta in (0.5, 2.0):
        scaled = replace(algorithm, server=ServerSgd(eta))
        fresh = scaled.init(start, simulation.server.federation)
        state, _ = server_step(scaled, fresh, report, simulation.server.federation)
        steps.append(state.params - start)
    assert steps[0].norm() > 0
    torch.testing.assert_close(4 * steps[0], steps[1], rtol=1e-4, atol=1e-6)


def test_schedule_gives_the_step_size_of_its_round():
    """A schedule halves the step size in round 2; rounds 0 and 1 have the first step size."""
    halving = experiment("fedau", local=Sgd(lr=Halving(0.4, start=2, every=1, most=1), steps=2), rounds=2)
    fixed = experiment("fedau", local=Sgd(lr=0.4, steps=2), rounds=2)
    one, other = trained(halving), trained(fixed)
    assert torch.equal(one.state.params, other.state.params)
    half = Simulation(experiment("fedau", local=Sgd(lr=0.2, steps=2)))
    half.server.state = other.state
    half.memory.restore(other.memory.state())
    assert torch.equal(train(one, np.arange(N)).updates.gathered(), train(half, np.arange(N)).updates.gathered())
