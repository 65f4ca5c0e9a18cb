"""Ditto: a personal model beside the shared one, independent of its report."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import classification
from torch import nn

from turnout import (
    ConfigurationError,
    Experiment,
    GradientMetrics,
    Population,
    Sgd,
    average_participating,
    compose,
    ditto,
    fedavg_p,
    models,
)
from turnout.data.shards import Shards
from turnout.pieces.personalization import Ditto, Personal
from turnout.pieces.selection import Uniform
from turnout.population import Speed, delay
from turnout.population.availability import Bernoulli
from turnout.protocol.pace import Buffered
from turnout.record import checkpoint
from turnout.simulation import Simulation, running

from ...phases import train

MODEL = models.Mlp(hidden=(6,))
P = 16 * 6 + 6 + 6 * 4 + 4
LOCAL = Sgd(lr=0.2, steps=4, batch_size=8)
EVERYONE = np.arange(8)
STALE = Population(speed=Speed(compute=delay.Uniform(1, 2), spread=1.0, per="task"))


def simulation_of(data, algorithm, rounds=6, **options):
    options = {"population": Population(Bernoulli(mean=0.5)), **options}
    return Simulation(Experiment(data, MODEL, algorithm, rounds=rounds, evaluate_every=rounds, **options))


def trained(data, algorithm, rounds=6, lanes=None, **options):
    simulation = simulation_of(data, algorithm, rounds, **options)
    simulation.workspace.lanes = lanes or simulation.workspace.lanes
    for _ in range(rounds):
        simulation.round()
    simulation.finish()
    return simulation


def own(simulation):
    return simulation.memory.gather(EVERYONE)["personal"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"proximal": -1.0}, "proximal: got -1.0"),
        ({"adaptation_steps": 0}, r"adaptation_steps: got 0, .* Or several, such as \(1, 5, 20\)"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Ditto(**options)


def test_personal_model_has_no_shared_part():
    with pytest.raises(ConfigurationError, match="Personal and Ditto are both for the slot 'personal'"):
        compose(Personal(), Ditto())


@pytest.mark.parametrize("local", [LOCAL, replace(LOCAL, momentum=0.5), replace(LOCAL, sampling="replacement")])
def test_zero_lambda_gives_fedavg_and_local_sgd(tiny, local):
    """Bit for bit: the two trainings are independent."""
    both = trained(tiny, ditto(local, proximal=0.0, cohort_size=3))
    shared = trained(tiny, average_participating(local, also=(Uniform(3),)))
    alone = trained(tiny, fedavg_p(local, personal="all", cohort_size=3))
    assert torch.equal(both.state.params, shared.state.params)
    assert torch.equal(own(both), own(alone))
    assert (own(both) - both.objective.initial).norm() > 0.1


def test_larger_lambda_keeps_personal_models_closer(tiny):
    runs = [trained(tiny, ditto(LOCAL, proximal=factor, cohort_size=8)) for factor in (0.0, 0.5, 4.0)]
    away = [float((own(run) - run.state.params).norm(dim=1).mean()) for run in runs]
    assert away[0] > away[1] > away[2] > 0


def test_report_is_independent_of_the_personal_model(tiny, tmp_path):
    one, other = (simulation_of(tiny, ditto(LOCAL, cohort_size=8)) for _ in range(2))
    other.memory.scatter(EVERYONE, other.memory.gather(EVERYONE) | {"personal": torch.ones(8, P)})
    sent, same = train(one, EVERYONE), train(other, EVERYONE)
    assert torch.equal(sent.updates.gathered(), same.updates.gathered())
    assert torch.equal(sent.seen["loss"], same.seen["loss"])
    assert (own(one) - own(other)).abs().max() > 0.1
    running.save_simulation(one, tmp_path)
    saved, _ = checkpoint.load(tmp_path)
    assert [name for name in saved if "personal" in name] == ["memory/table.personal"]


def test_dropped_client_keeps_its_personal_model(tiny):
    data = replace(tiny, train=replace(tiny.train, x=tiny.train.x.clone()))
    data.train.client(4)[0].fill_(3e38)
    simulation = simulation_of(data, ditto(LOCAL, cohort_size=8))
    train(simulation, EVERYONE)
    assert (own(simulation) != simulation.objective.initial).any(dim=1).tolist() == [k != 4 for k in range(8)]


def loss_of(simulation, params, x, y):
    module = simulation.experiment.build_model().eval()
    simulation.objective.layout.load(module, params)
    return float(nn.functional.cross_entropy(module(x), y).detach())


def test_clients_are_evaluated_with_personal_models_and_gradients_with_the_shared_one(tiny):
    simulation = trained(tiny, ditto(LOCAL, cohort_size=4), gradients=GradientMetrics())
    losses = [loss_of(simulation, own(simulation)[k], *tiny.train.client(k)) for k in range(8)]
    np.testing.assert_allclose(simulation.history.clients["train_loss"].to_numpy(), losses, rtol=1e-5)
    row = simulation.history.rounds.to_pylist()[-1]
    assert row["train_loss"] == pytest.approx(np.average(losses, weights=tiny.train.sizes), rel=1e-5)
    shared = trained(tiny, average_participating(LOCAL, also=(Uniform(4),)), gradients=GradientMetrics())
    assert row["squared_gradient_norm"] == shared.history.rounds.to_pylist()[-1]["squared_gradient_norm"]
    assert "squared_personal_gradient_norm" not in row


def test_unseen_clients_fine_tune_from_the_shared_model(tiny):
    """Two full-batch steps, so the result is known."""
    others = classification(sizes=(12, 30, 7), seed=5).train
    data, local = replace(tiny, unseen_train=others), replace(LOCAL, batch_size=64)
    pieces = (local, Ditto(proximal=3.0, adaptation_steps=2), Uniform(4))
    simulation = trained(data, compose(*pieces))
    expected = []
    for k in range(3):
        module, (x, y) = simulation.experiment.build_model(), others.client(k)
        shared = params = simulation.state.params
        for _ in range(2):
            simulation.objective.layout.load(module, params)
            gradients = torch.autograd.grad(nn.functional.cross_entropy(module(x), y), list(module.parameters()))
            gradient = torch.cat([part.flatten() for part in gradients]) + 3.0 * (params - shared)
            params = params - 0.2 * gradient
        expected.append(loss_of(simulation, params, x, y))
    row = simulation.history.rounds.to_pylist()[-1]
    assert row["unseen_train_loss"] == pytest.approx(np.average(expected, weights=[12, 30, 7]), rel=1e-5)


def test_test_examples_of_others_do_not_evaluate_personal_models(tiny):
    assert trained(tiny, ditto(LOCAL, cohort_size=4)).history.rounds.to_pylist()[-1]["test_accuracy"] is None
    tests = Shards(tiny.train.x, tiny.train.y, tiny.train.offsets)
    run = trained(replace(tiny, client_test=tests), ditto(LOCAL, cohort_size=4)).history.rounds.to_pylist()[-1]
    assert run["test_accuracy"] == run["train_accuracy"]


@pytest.mark.parametrize("lanes", [1, 3])
def test_personal_models_are_pulled_to_their_own_version(tiny, lanes):
    """In parallel or in sequence; a buffer mixes versions."""
    algorithm, options = compose(LOCAL, Ditto(1.0)), {"population": STALE, "pace": Buffered(4), "rounds": 12}
    some, all_at_once = trained(tiny, algorithm, lanes=lanes, **options), trained(tiny, algorithm, **options)
    assert max(row["staleness_max"] for row in all_at_once.history.rounds.to_pylist()) > 0
    assert torch.equal(own(some), own(all_at_once))
    assert torch.equal(some.state.params, all_at_once.state.params)
