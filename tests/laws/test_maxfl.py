"""Clients who come and go with the model, and attackers: nothing of it may depend on anything but what they find."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import AfterRound, AppealMetrics, Population, average_participating, maxfl, models
from turnout.population import sign_flipping
from turnout.population.availability import Bernoulli, Everyone, Trace
from turnout.population.behavior import Byzantine, Opting
from turnout.population.requirement import GivenRequirement, WarmUp
from turnout.record.checkpoint import FILE
from turnout.simulation import Simulation, running

from ..phases import train
from .recipes import DATA, LOCAL, RATES, N, assert_same_bits, assert_same_tensors, experiment, trained

ALL = {
    "come and go": Opting(3),
    "leave for good": Opting(3, comes_back=False),
}
JUDGED = replace(DATA, test=None, client_test=DATA.train, unseen_train=DATA.train, unseen_test=DATA.train)
METRICS = AppealMetrics(tuning_steps=2)


def lively(name="maxfl", opting=ALL["come and go"], **options):
    """A run with opting in, attackers and evaluation of appeal."""
    population = Population(Bernoulli(rates=RATES), requirement=WarmUp(5), opting=opting, behavior=Byzantine(0.25))
    run = experiment(name, population=population, appeal=METRICS, **options)
    return replace(run, data=JUDGED)


@pytest.mark.parametrize("opting", ALL)
def test_resumed_runs_have_the_same_clients_opted_in(opting, tmp_path):
    run = lively(opting=ALL[opting])

    def cut(row):
        if row["round"] == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(tmp_path / "cut", checkpoint_every=5, callbacks=[AfterRound(cut)])
    run.run(tmp_path / "cut", resume=True)
    run.run(tmp_path / "whole")
    whole, found = Simulation(run), Simulation(run)
    running.restore(whole, tmp_path / "whole")
    running.restore(found, tmp_path / "cut")
    assert_same_bits(found, whole)
    kept = trained(run).opt_in.state()
    assert_same_tensors(found.opt_in.state(), kept)
    assert "pool.gone" not in kept or kept["pool.gone"].any()
    assert (tmp_path / "cut" / FILE).exists()
    pool = found.history.rounds["pool"].to_pylist()
    assert pool[:3] == [N] * 3
    assert 0 < min(pool) < N


@pytest.mark.parametrize("name", ["maxfl", "mw_fed", "perfedavg, hessian", "scaffold", "fednu"])
def test_number_of_lanes_changes_no_bit(name):
    everyone, threes = (trained(lively(name, rounds=6), lanes) for lanes in (100, 3))
    assert_same_bits(threes, everyone)


@pytest.mark.parametrize("name", ["maxfl", "qffl", "perfedavg"])
def test_engines_agree_on_the_clients_that_opt_in(name):
    one, other = (trained(lively(name, engine=engine, rounds=6)) for engine in ("vectorized", "one_by_one"))
    assert (one.state.params - other.state.params).norm() < 1e-4 * other.state.params.norm()
    for column in ("pool", "appeal_test", "unseen_preferred_accuracy", "tuned_appeal_train"):
        assert one.history.rounds[column].to_pylist() == pytest.approx(
            other.history.rounds[column].to_pylist(), nan_ok=True
        )


@pytest.mark.parametrize("name", ["fedavg", "fedau", "mifa", "fedvarp", "scaffold", "qffl", "folb"])
def test_clients_that_opt_out_do_not_affect_the_training_of_others(name):
    """The result is that of a run in which the clients that opt out are unavailable from then on."""
    leavers = (1, 4, 6)
    table = tuple(0.0 if k in leavers else 1e9 for k in range(N))
    opting = Population(Everyone(), requirement=GivenRequirement(table), opting=Opting(4))
    away = Population(Trace(tuple((k, 0, 4 if k in leavers else 10) for k in range(N)), repeat=False))
    left, absent = (trained(experiment(name, population=population, rounds=7)) for population in (opting, away))
    assert torch.equal(left.state.params, absent.state.params)
    for place, slot in left.state.slots.items():
        assert_same_tensors(slot, absent.state.slots[place])
    assert_same_tensors(left.memory.state(), absent.memory.state())
    assert left.history.participation.equals(absent.history.participation)
    assert left.history.rounds["pool"].to_pylist() == [8.0] * 4 + [5.0] * 3


def test_full_pool_restricts_nothing_and_empty_pool_stops_training():
    for required, moves in ((1e9, True), (0.0, False)):
        given = GivenRequirement((required,) * N)
        population = Population(Bernoulli(rates=RATES), requirement=given, opting=Opting(0))
        run = experiment("fedavg", population=population)
        free = trained(experiment("fedavg"))
        params = trained(run).state.params
        assert torch.equal(params, free.state.params if moves else Simulation(run).state.params)


def test_algorithms_with_the_same_step_size_share_their_requirements():
    tables = [trained(lively(name, rounds=1)).history.clients["requirement"] for name in ("maxfl", "qffl", "perfedavg")]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


def test_clients_that_report_a_huge_loss_have_no_weight():
    """Their weight q is exactly 0, so their updates, whatever their scale, change no bit."""

    def params(**attack):
        given = GivenRequirement((1.0,) * N)
        population = Population(Everyone(), requirement=given, behavior=Byzantine(0.25, inflation=1e4, **attack))
        return trained(experiment("maxfl", population=population)).state.params

    reference = params()
    assert torch.equal(params(noise=7.0), reference)
    assert torch.equal(params(scale=-20.0), reference)


def test_attackers_change_a_plain_mean():
    def params(behavior):
        return trained(experiment("fedavg", population=Population(Everyone(), behavior=behavior))).state.params

    honest = params(None)
    assert not torch.equal(params(Byzantine(0.25)), honest)
    assert not torch.equal(params(sign_flipping(0.25)), honest)
    assert torch.equal(params(Byzantine(0.25, noise=0.0)), honest)  # a lie about the loss alone is nothing to it
    torch.testing.assert_close(params(Byzantine(0.0)), honest)


def test_attackers_do_not_clip_themselves():
    population = Population(Everyone(), behavior=Byzantine(0.25, noise=0.0, scale=10.0))
    simulation = Simulation(experiment("fedau, clipped", population=population))
    norms = train(simulation, np.arange(N)).delta.norm(dim=1)
    assert simulation.behavior is not None
    attackers = torch.from_numpy(simulation.behavior.attackers)
    assert (norms[~attackers] <= 0.5 + 1e-6).all()
    assert (norms[attackers] > 4).all()


@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
def test_maxfl_with_identical_gaps_is_federated_averaging_with_the_adaptive_step(epsilon):
    """A whole run of clients with the same data and the same requirement."""
    x, y = DATA.train.client(4)
    twins = replace(DATA, train=type(DATA.train)(x.repeat(4, 1), y.repeat(4), np.arange(5) * len(x)), test=None)
    given = Population(requirement=GivenRequirement((1.3,) * 4))
    local = replace(LOCAL, sampling="fresh")
    options = {"model": models.Mlp(hidden=(16,)), "population": given, "rounds": 1}
    run = replace(experiment("maxfl", **options), data=twins)
    steps = []
    for algorithm in (maxfl(local, epsilon=epsilon, cohort_size=4), average_participating(local)):
        simulation = Simulation(replace(run, algorithm=algorithm))
        start = simulation.state.params.clone()
        gap = train(Simulation(replace(run, algorithm=maxfl(local, cohort_size=4))), np.arange(4)).seen["appeal_gap"]
        simulation.round()
        steps.append(simulation.state.params - start)
    assert len(set(gap.tolist())) == 1
    q = 4 * float(torch.sigmoid(gap[0]) * torch.sigmoid(-gap[0]))
    torch.testing.assert_close(steps[0], steps[1] * (q / (q + epsilon)), rtol=1e-4, atol=1e-7)
