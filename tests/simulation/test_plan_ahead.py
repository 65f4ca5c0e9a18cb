"""The next round is planned while a device computes the present one, with the same results."""

from dataclasses import replace

import pytest
import torch

from turnout import Experiment, Population, Sgd, fedavg
from turnout.core.checks import ConfigurationError
from turnout.models import Logistic
from turnout.pieces.local import minibatches, solver
from turnout.pieces.selection import AllAvailable
from turnout.population.availability import Bernoulli
from turnout.simulation import Simulation
from turnout.simulation.lockstep import together
from turnout.simulation.plan_ahead import PlanAhead

from ..laws.recipes import COVERING, DATA, LOCAL, RECIPES, assert_same_bits, experiment

ROUNDS = 6


def simulated(run, ahead=True):
    """Return a simulation that plans ahead also on a CPU, where nothing is waited for."""
    simulation = Simulation(run)
    assert simulation.plan_ahead is None
    if ahead:
        cohorts = simulation.coordinator.scheduler.cohorts
        simulation.plan_ahead = PlanAhead.of(cohorts, simulation.workers, run.rounds, run.seed)
    return simulation


def trained(run, ahead=True):
    simulation = simulated(run, ahead)
    for _ in range(run.rounds):
        simulation.round()
    simulation.finish()
    return simulation


@pytest.fixture
def planned(monkeypatch):
    """The versions for which minibatches are planned, in order."""
    versions: list[int] = []

    def plan(**inputs):
        versions.append(int(inputs["versions"][0]))
        return minibatches.plan(**inputs)

    monkeypatch.setattr(solver, "plan", plan)
    return versions


@pytest.mark.parametrize("name", COVERING)
def test_results_are_those_of_rounds_that_plan_themselves(name):
    run = experiment(name, rounds=ROUNDS)
    assert_same_bits(trained(run), trained(run, ahead=False))


@pytest.mark.parametrize("local", [LOCAL, Sgd(steps=None, epochs=1, batch_size=8), replace(LOCAL, sampling="fresh")])
def test_plans_are_used(local, planned):
    simulation = trained(experiment("fedau", local=local, rounds=ROUNDS))
    assert planned == list(range(ROUNDS))  # each round once: the first by itself, the others ahead
    assert not simulation.workers.ahead


def test_next_round_is_planned_before_the_server_step(planned):
    simulation = simulated(experiment("fedau", rounds=ROUNDS))
    step = simulation.coordinator.take
    seen = []

    def take(batch, reports):
        seen.append((batch.version, planned[-1]))
        return step(batch, reports)

    simulation.coordinator.take = take
    for _ in range(ROUNDS):
        simulation.round()
    assert seen == [(version, min(version + 1, ROUNDS - 1)) for version in range(ROUNDS)]


@pytest.mark.parametrize("name", [name for name in ("scaffold", "oort", "fednu", "ditto") if name in RECIPES])
def test_rounds_that_depend_on_the_one_before_are_not_planned(name):
    assert simulated(experiment(name, rounds=ROUNDS)).plan_ahead is None


class Own(AllAvailable):
    """A selection of another package, which may count its calls."""


def test_selections_of_other_packages_are_not_called_ahead():
    run = Experiment(DATA, Logistic(), fedavg(LOCAL, also=(Own(),)), rounds=ROUNDS)
    assert simulated(run).plan_ahead is None


def test_report_that_is_dropped_changes_no_plan():
    """The client's next minibatches follow those that it has used, as without the plan."""
    run = experiment("mifa", rounds=ROUNDS)

    def broken(ahead):
        simulation = simulated(run, ahead)
        assert (simulation.plan_ahead is not None) == ahead
        step = simulation.coordinator.take

        def take(batch, reports):
            if batch.version == 2:
                reports.delta[0] = torch.nan
            return step(batch, reports)

        simulation.coordinator.take = take
        for _ in range(run.rounds):
            simulation.round()
        simulation.finish()
        return simulation

    one, other = broken(ahead=True), broken(ahead=False)
    assert one.history.rounds["num_dropped"].to_pylist()[2] == 1
    assert_same_bits(one, other)


def test_error_of_a_round_is_raised_in_that_round(monkeypatch):
    run = Experiment(DATA, Logistic(), fedavg(LOCAL), Population(Bernoulli(mean=0.5)), rounds=ROUNDS)
    simulation = simulated(run)
    available = type(simulation.availability).available

    def ends(self, clients, round):
        if round == 3:
            raise ConfigurationError("the trace has 3 rounds")
        return available(self, clients, round)

    monkeypatch.setattr(type(simulation.availability), "available", ends)
    for _ in range(3):
        simulation.round()
    with pytest.raises(ConfigurationError, match="the trace has 3 rounds"):
        simulation.round()
    assert simulation.state.version == 3


def test_runs_in_lock_step_plan_their_joint_cohort_themselves(planned):
    """A plan that is not used is the last one."""
    runs = [experiment("fedau", rounds=ROUNDS, seed=seed) for seed in (0, 1)]
    joint = [simulated(run) for run in runs]
    for _ in range(ROUNDS):
        together([simulation.steps() for simulation in joint])
    assert len(planned) == 2 + ROUNDS
    for run, simulation in zip(runs, joint, strict=True):
        simulation.finish()
        assert_same_bits(simulation, trained(run, ahead=False))


def test_last_round_plans_no_further_one(planned):
    trained(experiment("fedau", rounds=1))
    assert planned == [0]
