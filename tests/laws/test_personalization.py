"""Personalization and control variates: what stays true in every round, known methods at known limits, known optima."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from turnout import (
    Experiment,
    GradientMetrics,
    Population,
    Sgd,
    average_participating,
    compose,
    fedalt,
    fedavg,
    fedavg_p,
    fedbuff,
    fedper,
    fedsim,
    fedstaleweight,
    mifa,
    models,
    scaffold,
    scaffold_p,
)
from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.pieces.aggregation import FedVarp, WeightedSum
from turnout.pieces.guard import Clip
from turnout.pieces.local import Scaffold, UniformWork
from turnout.pieces.personalization import Personal
from turnout.pieces.selection import Uniform
from turnout.pieces.weighting import DivideByClients, Participation
from turnout.population import Speed, delay
from turnout.population.availability import Bernoulli, Everyone, Markov
from turnout.protocol.pace import Buffered
from turnout.record.client_memory import ClientMemory
from turnout.simulation import Simulation, running

from ..phases import next_cohort, train
from .recipes import DATA, LOCAL, RATES, RECIPES, N, assert_same_bits, assert_same_tensors, experiment, trained

MODEL = models.Mlp(hidden=(16,))
EVERYONE = np.arange(N)


def run_of(algorithm, rounds=6, population=None, **options):
    population = population or Population(Bernoulli(rates=RATES))
    return Experiment(DATA, MODEL, algorithm, population, rounds=rounds, evaluate_every=rounds, **options)


def memory_of(simulation, name):
    return simulation.memory.gather(EVERYONE)[name]


# limits


def test_scaffold_p_without_personal_part_is_scaffold_bit_for_bit():
    for initial in ("zeros", "gradients"):
        one = trained(run_of(scaffold_p(LOCAL, personal="none", initial=initial, cohort_size=3)))
        other = trained(run_of(scaffold(LOCAL, initial=initial, cohort_size=3)))
        assert_same_tensors({"params": one.state.params}, {"params": other.state.params})
        assert_same_tensors(one.state.slots["controls"], other.state.slots["controls"])
        assert torch.equal(memory_of(one, "control"), memory_of(other, "control"))


def test_fedavg_p_without_personal_part_is_fedavg_bit_for_bit():
    one = trained(run_of(fedavg_p(LOCAL, personal="none", cohort_size=3, outer_lr=3.0, lr_factor=2.0)))
    other = trained(run_of(average_participating(LOCAL, also=(Uniform(3),))))
    assert torch.equal(one.state.params, other.state.params)


def test_fedsim_is_fedavg_p_with_outer_steps_of_one_and_fedalt_without_turns():
    ends = [
        trained(run_of(algorithm))
        for algorithm in (
            fedsim(LOCAL, cohort_size=3),
            fedavg_p(LOCAL, cohort_size=3),
            fedalt(LOCAL, share=0.0, cohort_size=3),
        )
    ]
    for other in ends[1:]:
        assert torch.equal(ends[0].state.params, other.state.params)
        assert torch.equal(memory_of(ends[0], "personal"), memory_of(other, "personal"))


def test_fedper_is_fedsim_for_clients_of_equal_size():
    shards = Shards(DATA.train.x[:232], DATA.train.y[:232], np.arange(0, 233, 29))
    data = replace(DATA, train=shards)
    one, other = (trained(replace(run_of(make(LOCAL, cohort_size=3)), data=data)) for make in (fedper, fedsim))
    torch.testing.assert_close(one.state.params, other.state.params, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [fedavg_p, scaffold_p])
def test_one_step_of_everyone_with_nothing_shared_is_parallel_sgd(make):
    """Each client descends its own loss (K = 1, m = n)."""
    local = Sgd(lr=0.3, steps=1, batch_size=64)
    simulation = trained(run_of(make(local, personal="all", cohort_size=N), population=Population(Everyone())))
    own = memory_of(simulation, "personal")
    for k in range(N):
        module = simulation.experiment.build_model()
        x, y = DATA.train.client(k)
        for _ in range(6):
            loss = nn.functional.cross_entropy(module(x), y)
            gradients = torch.autograd.grad(loss, list(module.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                    parameter -= 0.3 * gradient
        torch.testing.assert_close(own[k], simulation.objective.layout.flatten(module), rtol=1e-4, atol=1e-5)
    assert len(simulation.state.params) == 0


@pytest.mark.parametrize("option", ["I", "II"])
def test_one_exact_step_of_everyone_is_gradient_descent_with_and_without_control_variates(option):
    """Control variates sum to zero over all clients, so they cancel with K = 1 and full participation."""
    local, everyone = Sgd(lr=0.3, steps=1, batch_size=64), Population(Everyone())
    one = trained(run_of(scaffold(local, option=option, cohort_size=N), population=everyone))
    other = trained(run_of(average_participating(local), population=everyone))
    torch.testing.assert_close(one.state.params, other.state.params, rtol=1e-4, atol=1e-5)
    assert memory_of(one, "control").norm() > 0.1


def test_options_of_scaffold_agree_for_one_full_batch_step():
    """The gradient of the single full minibatch is the full gradient at the received model."""
    local = Sgd(lr=0.3, steps=1, batch_size=64)
    one, other = (trained(run_of(scaffold(local, option=option, cohort_size=3))) for option in ("I", "II"))
    torch.testing.assert_close(one.state.params, other.state.params, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(memory_of(one, "control"), memory_of(other, "control"), rtol=1e-3, atol=1e-5)


# what stays true

COMBINED = {
    "scaffold_p": scaffold_p(LOCAL, cohort_size=3),
    "scaffold_p, clipped": scaffold_p(LOCAL, cohort_size=3, also=(Clip(0.01),)),
    "with fedau's weights": compose(
        LOCAL, Scaffold(initial="gradients"), Personal(), Participation(3), DivideByClients()
    ),
    "with fedvarp": compose(LOCAL, Scaffold(), Personal("first"), FedVarp()),
    "with mifa": mifa(LOCAL, also=(Scaffold(), Personal())),
    "by examples": fedavg(LOCAL, also=(Scaffold(), Personal())),
    "taking turns": compose(LOCAL, Scaffold("I"), Personal(alternate=0.5)),
}


@pytest.mark.parametrize("population", [Population(Bernoulli(rates=RATES)), Population(Markov(rates=RATES, join=0.2))])
@pytest.mark.parametrize("name", COMBINED)
def test_control_variate_of_the_server_is_the_mean_of_those_of_clients(name, population):
    simulation = Simulation(run_of(COMBINED[name], rounds=5, population=population))
    for _ in range(5):
        simulation.round()
        mean = memory_of(simulation, "control").double().mean(dim=0)
        torch.testing.assert_close(simulation.state.slots["controls"]["control"], mean, rtol=0, atol=1e-6)
    assert memory_of(simulation, "control").norm() > 0.1


@pytest.mark.parametrize("name", COMBINED)
def test_memory_of_absent_clients_does_not_change(name):
    simulation = Simulation(run_of(COMBINED[name]))
    simulation.round()  # before which everyone may have been asked
    for _ in range(4):
        before = simulation.memory.gather(EVERYONE)
        cohort = next_cohort(simulation)
        simulation.round()
        absent = np.setdiff1d(EVERYONE, cohort)
        for field, value in simulation.memory.gather(absent).items():
            assert torch.equal(value, before[field][absent]), field


# where they end up


class Split(nn.Module):
    """Linear regression with a part of the inputs for each part of the model."""

    def __init__(self):
        super().__init__()
        self.u, self.v = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return x[:, :3] @ self.u + x[:, 3:] @ self.v


def half_square(outputs, targets):
    return (outputs - targets) ** 2 / 2


def quadratics(seed=0):
    """Six clients whose optima and curvatures differ, none of them flat."""
    rng = np.random.default_rng(seed)
    x = np.linalg.qr(rng.normal(size=(6, 8, 5)))[0] * rng.uniform(2, 4, size=(6, 1, 5))
    x += 0.2 * rng.normal(size=x.shape)
    y = rng.normal(size=(6, 8)) + 2 * rng.normal(size=(6, 1))
    shards = Shards(
        torch.from_numpy(x.reshape(48, 5)), torch.from_numpy(y.reshape(48)), np.arange(0, 49, 8, dtype=np.int64)
    )
    return FederatedData("quadratics", shards)


def final_gradient(algorithm, rounds=90, population=None):
    """G_u + (m/n) G_v at the end."""
    run = Experiment(
        quadratics(), Split().double(), algorithm, population or Population(), rounds=rounds,
        evaluate_every=rounds, loss=half_square, gradients=GradientMetrics(),
    )  # fmt: skip
    return trained(run).history.final("squared_gradient_norm")


EXACT = Sgd(lr=0.1, steps=5, batch_size=8)
"""All of a client's examples in every gradient: without noise."""


def test_scaffold_p_converges_where_fedavg_p_stalls():
    """With exact gradients and two of six clients a round, only heterogeneity remains, which control variates remove."""
    personal = {"personal": "v", "cohort_size": 2}
    assert final_gradient(scaffold_p(EXACT, **personal)) < 1e-8
    assert final_gradient(scaffold_p(EXACT, initial="zeros", **personal)) < 1e-8
    assert final_gradient(fedavg_p(EXACT, **personal)) > 1e-2


def test_scaffold_converges_where_federated_averaging_stalls():
    assert final_gradient(scaffold(EXACT, cohort_size=2)) < 1e-12
    assert final_gradient(scaffold(EXACT, option="I", cohort_size=2)) < 1e-12
    assert final_gradient(average_participating(EXACT, also=(Uniform(2),))) > 1e-2


def test_with_fewer_local_steps_fedavg_p_stalls_closer_to_the_optimum():
    """The error floor rises with K if clients are sampled."""
    floors = [
        final_gradient(fedavg_p(Sgd(lr=0.1, steps=steps, batch_size=8), personal="v", cohort_size=2))
        for steps in (1, 4, 16)
    ]
    assert floors[0] < floors[1] < floors[2]


def test_unequal_work_biases_federated_averaging_and_control_variates_still_cancel_the_rest():
    """A control variate is the mean gradient of a client's own steps, however many they are."""
    local = Sgd(lr=0.1, steps=UniformWork(1, 5), batch_size=8)
    assert final_gradient(scaffold_p(local, personal="v", cohort_size=2)) < 1e-6


def test_personal_methods_combine_with_weights_of_fedau_under_bursty_participation():
    """Scaffold-P with weights of FedAU, bursty availability and clipped updates."""
    population = Population(Markov(rates=(0.9, 0.7, 0.5, 0.4, 0.3, 0.2), join=0.3))
    pieces = (EXACT, Scaffold(), Personal("v"), Participation(), DivideByClients())
    assert final_gradient(compose(*pieces), population=population) < 1e-6
    without = compose(EXACT, Personal("v"), Participation(), DivideByClients())
    assert final_gradient(without, population=population) > 1e-2


# where it is kept


@pytest.mark.parametrize("name", ["scaffold_p", "with fedau's weights"])
def test_memory_in_a_file_changes_no_bit_of_resumed_runs(name, tmp_path, monkeypatch):
    run = run_of(COMBINED[name], rounds=8)
    expected = trained(run)
    monkeypatch.setattr("turnout.simulation.simulation.ClientMemory", lambda n, first, _: ClientMemory(n, first, 0))
    whole, cut = trained(run), Simulation(run)
    for _ in range(4):
        cut.round()
    running.save_simulation(cut, tmp_path)
    again = Simulation(run)
    running.restore(again, tmp_path)
    for _ in range(4):
        again.round()
    again.finish()
    for simulation in (whole, again):
        assert simulation.memory._files.keys() == {"control", "personal", "steps_done"}
        assert_same_bits(simulation, expected)


# in a buffer

CLOCK = Population(speed=Speed(compute=delay.Uniform(1, 2), spread=1.0, per="task"))


def test_buffer_of_all_clients_equals_a_round_with_personal_parts():
    alike = Population(speed=Speed())
    algorithm = compose(LOCAL, Personal())
    buffered = trained(run_of(algorithm, population=alike, pace=Buffered(N, waits="always")))
    rounds = trained(run_of(algorithm, population=alike))
    assert torch.equal(buffered.state.params, rounds.state.params)
    assert torch.equal(memory_of(buffered, "personal"), memory_of(rounds, "personal"))


@pytest.mark.parametrize("make", [fedstaleweight, fedbuff])
def test_personal_parts_continue_from_their_last_value_in_a_buffer(make):
    """The personal part does not depend on the staleness of the shared part; clients outside a step keep theirs."""
    run = run_of(make(LOCAL, also=(Personal(),)), population=CLOCK, pace=Buffered(4), rounds=12)
    simulation, stale = Simulation(run), 0.0
    for _ in range(12):
        before = memory_of(simulation, "personal")
        simulation.round()
        there = simulation.history.participation
        came = there["client"].to_numpy()[there["round"].to_numpy() == simulation.state.version]
        changed = (memory_of(simulation, "personal") != before).any(dim=1)
        assert changed.tolist() == np.isin(EVERYONE, came).tolist()
        stale = max(stale, simulation.row["staleness_max"])
    assert stale > 0


def test_tasks_of_one_client_in_a_buffer_run_one_after_the_other():
    """With exact gradients and no shared part, the assignment of tasks to steps makes no difference."""
    local = Sgd(lr=0.3, steps=2, batch_size=64)
    run = run_of(compose(local, Personal("all")), population=CLOCK, pace=Buffered(6, waits="never"), rounds=12)
    simulation = trained(run)
    assert simulation.server.influence is not None
    tasks = simulation.server.influence.columns()["contributions"]
    alone = Simulation(run_of(compose(local, Personal("all"))))
    for turn in range(int(tasks.max())):
        train(alone, np.flatnonzero(tasks > turn))
    torch.testing.assert_close(memory_of(simulation, "personal"), memory_of(alone, "personal"), rtol=1e-4, atol=1e-5)
    steps = simulation.history.participation["round"].to_numpy()
    assert len(steps) < tasks.sum()  # some were in a step more than once


# local training alone


def alone(name) -> Any:
    """Return the run of a recipe in which no parameter is shared; None if the recipe is about updates."""
    run = experiment(name, rounds=3)
    with suppress(ConfigurationError):
        return replace(run, algorithm=replace(run.algorithm, personal=Personal("all")))


def is_about_updates(algorithm):
    """Return True for guards, aggregations other than sums, and local rules that compare or keep whole models."""
    sums = isinstance(algorithm.aggregation, WeightedSum)
    pieces = {type(piece).__name__ for piece in (algorithm.local, *algorithm.corrections)}
    whole = {"MixtureSteps", "MoreauSteps", "AggregationSteps", "GradientTracking", "Contrastive"}
    return bool(algorithm.guard) or not sums or bool(pieces & whole)


@pytest.mark.parametrize("name", RECIPES)
def test_clients_train_alone_with_every_recipe_that_is_not_about_updates(name):
    run = alone(name)
    assert (run is None) == is_about_updates(experiment(name, rounds=3).algorithm)
    if run is not None:
        simulation = trained(run)
        assert len(simulation.state.params) == 0
        assert memory_of(simulation, "personal").isfinite().all()


WEIGHTS = ("fedau", "average_all", "known_statistics", "fedau of shares", "fedau in groups", "fedau that forgets")


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_do_not_change_clients_that_train_alone(name):
    """With the same clients in every round, for clients of unequal sizes."""
    one, other = (trained(alone(it)) for it in ("average_participating", name))
    assert torch.equal(memory_of(one, "personal"), memory_of(other, "personal"))
