"""Requirements of clients in a simulation: evaluation, pools and costs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from turnout import (
    AppealMetrics,
    ConfigurationError,
    Experiment,
    Population,
    Sgd,
    average_participating,
    fedavg,
    maxfl,
    models,
    perfedavg,
)
from turnout.base.tuning import tuned
from turnout.core.types import Task
from turnout.data.shards import Shards
from turnout.engine.full_batch import full_scores
from turnout.engine.objective import Objective
from turnout.pieces.personalization import Personal
from turnout.population.behavior import Byzantine, Opting
from turnout.population.requirement import GivenRequirement, WarmUp
from turnout.simulation import Simulation, running
from turnout.simulation.client_groups import ClientGroup

from ..phases import train
from ..tiny import classification

LOCAL = Sgd(lr=0.3, steps=3, batch_size=16)
N, UNSEEN = 8, 4


@pytest.fixture(scope="module")
def data():
    """Return clients with test examples, one of them without, and unseen clients."""
    seen, parts, begin = classification(), [], 0
    assert seen.test is not None
    for sizes in ((7, 3, 0, 9, 9, 5, 4, 8), (12, 30, 9, 22), (5, 5, 5, 5)):
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = slice(begin, begin := begin + sum(sizes))
        parts.append(Shards(seen.test.x[rows], seen.test.y[rows], offsets))
    return replace(seen, test=None, client_test=parts[0], unseen_train=parts[1], unseen_test=parts[2])


def simulation_of(data, algorithm=None, **options):
    few = Population(requirement=WarmUp(steps=5))
    options = {"model": models.Logistic(), "rounds": 4, "evaluate_every": 2, "population": few, **options}
    return Simulation(Experiment(data, algorithm=algorithm or average_participating(LOCAL), **options))


def run(simulation):
    for _ in range(simulation.experiment.rounds):
        simulation.round()
    simulation.finish()
    return simulation


def by_client(simulation, shards, params=None):
    """Loss and accuracy of each client, one after another."""
    module = simulation.experiment.build_model()
    torch.nn.utils.vector_to_parameters(simulation.state.params if params is None else params, module.parameters())
    loss, accuracy = np.full(shards.num_clients, np.nan), np.full(shards.num_clients, np.nan)
    for k in range(shards.num_clients):
        x, y = shards.client(k)
        if len(x):
            outputs = module(x).detach()
            loss[k] = torch.nn.functional.cross_entropy(outputs, y)
            accuracy[k] = (outputs.argmax(dim=1) == y).double().mean()
    return loss, accuracy


def test_own_models_are_trained_only_on_demand(data, monkeypatch):
    def refuse(*_):
        raise AssertionError("own models were trained")

    monkeypatch.setattr(ClientGroup, "scores_after", refuse)
    plain = run(simulation_of(data))
    assert "requirement" not in plain.history.clients.column_names
    assert "pool" not in plain.history.column_names
    pool = Population(opting=Opting(0))
    for options in ({"algorithm": maxfl(LOCAL, cohort_size=3)}, {"appeal": AppealMetrics()}, {"population": pool}):
        with pytest.raises(AssertionError, match="own models were trained"):
            run(simulation_of(data, **options))


def test_requirements_equal_results_of_own_models(data):
    simulation = simulation_of(data, population=Population(requirement=WarmUp(steps=9)), appeal=AppealMetrics())
    requirement = simulation.opt_in.requirement
    assert requirement is not None
    clients = simulation.workspace.clients(np.arange(N))
    own = tuned(LOCAL.alone(9), Task(simulation.objective.initial, 0, 0), clients, "own models").params
    for k in range(N):
        loss, _ = by_client(simulation, data.train, own[k])
        test_loss, test_accuracy = by_client(simulation, data.client_test, own[k])
        assert requirement.train[k] == pytest.approx(loss[k], rel=1e-5)
        assert requirement.test is not None
        assert requirement.test[k] == pytest.approx(test_loss[k], rel=1e-5, nan_ok=True)
        assert requirement.solo_accuracy is not None
        assert requirement.solo_accuracy[k] == pytest.approx(test_accuracy[k], nan_ok=True)
    start, _ = by_client(simulation, data.train, simulation.objective.initial)
    assert (requirement.train < start).all()  # they have learned something


def test_own_models_and_pools_do_not_depend_on_chunks(data):
    options = {
        "appeal": AppealMetrics(2),
        "population": Population(requirement=WarmUp(5), opting=Opting(1)),
        "model": models.Mlp(hidden=(512,)),
    }
    whole = run(simulation_of(data, **options))
    parts = run(simulation_of(data, **options, memory_budget=1 << 20))
    assert parts.workspace.lanes < N <= whole.workspace.lanes
    assert torch.equal(parts.state.params, whole.state.params)
    assert parts.history.rounds.drop_columns(["seconds"]).equals(whole.history.rounds.drop_columns(["seconds"]))
    assert parts.history.clients["requirement"].to_pylist() == whole.history.clients["requirement"].to_pylist()


def test_columns_equal_hand_counts(data):
    simulation = run(simulation_of(data, population=Population(requirement=WarmUp(5)), appeal=AppealMetrics()))
    row, opt_in = simulation.history.rounds.to_pylist()[-1], simulation.opt_in
    for prefix, kind, training, test in (
        ("", "seen", data.train, data.client_test), ("unseen_", "unseen", data.unseen_train, data.unseen_test),
    ):  # fmt: skip
        requirement = opt_in.groups[kind].bound
        assert requirement is not None
        assert requirement.test is not None
        assert requirement.solo_accuracy is not None
        loss, _ = by_client(simulation, training)
        test_loss, accuracy = by_client(simulation, test)
        tested, happy = test.sizes > 0, test_loss < requirement.test
        assert row[f"{prefix}appeal_train"] == pytest.approx((loss < requirement.train).mean())
        assert row[f"{prefix}appeal_test"] == pytest.approx(happy[tested].mean())
        assert row[f"{prefix}client_accuracy"] == pytest.approx(accuracy[tested].mean())
        preferred = np.where(happy, accuracy, requirement.solo_accuracy)[tested].mean()
        assert row[f"{prefix}preferred_accuracy"] == pytest.approx(preferred)
    assert [value is not None for value in simulation.history.rounds["appeal_test"].to_pylist()] == [False, True] * 2
    assert 0 < row["appeal_train"] < 1
    assert not any(name.startswith(("tuned", "unseen_tuned")) for name in row)


def test_tuned_columns_evaluate_fine_tuned_models(data):
    simulation = run(simulation_of(data, appeal=AppealMetrics(tuning_steps=4)))
    row = simulation.history.rounds.to_pylist()[-1]
    clients = simulation.workspace.clients(np.arange(N))
    task = tuned(LOCAL.alone(4), Task(simulation.state.params, 4, 0), clients, "tuning")
    loss, _ = full_scores(clients, task.params)
    requirement = simulation.opt_in.requirement
    assert requirement is not None
    assert row["tuned_appeal_train"] == pytest.approx((loss.numpy() < requirement.train).mean())
    assert row["tuned_appeal_train"] > row["appeal_train"]
    assert "unseen_tuned_preferred_accuracy" in row


def test_per_fedavg_tunes_by_its_adaptation_step(data):
    alone, adapted = (perfedavg(LOCAL, alpha=alpha, cohort_size=3) for alpha in (1e-9, 0.3))
    rows = [
        run(simulation_of(data, a, appeal=AppealMetrics(5))).history.rounds.to_pylist()[-1] for a in (alone, adapted)
    ]
    for name in ("appeal_train", "client_accuracy", "unseen_preferred_accuracy"):
        assert rows[0][f"tuned_{name}" if "unseen" not in name else "unseen_tuned_preferred_accuracy"] == rows[0][name]
    assert rows[1]["tuned_appeal_train"] != rows[1]["appeal_train"]
    solo = [simulation_of(data, a, appeal=AppealMetrics()).opt_in.requirement for a in (alone, adapted)]
    assert solo[0] is not None
    assert solo[1] is not None
    assert (solo[0].train == solo[1].train).all()  # own models are trained by plain steps


def test_given_requirements_are_in_reports(data):
    given = tuple(np.linspace(0.1, 2.0, N))
    for measure, sign in (("loss", 1.0), ("accuracy", -1.0)):
        table = given if measure == "loss" else tuple(value / 2 for value in given)
        requirement = GivenRequirement(table, measure=measure)  # type: ignore[arg-type]
        simulation = simulation_of(data, maxfl(LOCAL, cohort_size=3), population=Population(requirement=requirement))
        ids = np.array([1, 3, 6])
        gap = train(simulation, ids).seen["appeal_gap"]
        value = by_client(simulation, data.train)[measure == "accuracy"]
        expected = torch.from_numpy(sign * (value - np.array(table)))[ids]
        torch.testing.assert_close(gap, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigurationError, match="2 requirements were given for 8 clients"):
        run(
            simulation_of(
                data, maxfl(LOCAL, cohort_size=3), population=Population(requirement=GivenRequirement((1, 2)))
            )
        )


def test_gap_uses_the_tuned_model_and_the_update_the_received_one(data):
    given = Population(requirement=GivenRequirement((0.5,) * N))
    plain, fitted = (
        train(simulation_of(data, maxfl(LOCAL, tuning_steps=k, cohort_size=3), population=given), np.arange(N))
        for k in (0, 6)
    )
    assert (fitted.seen["appeal_gap"] < plain.seen["appeal_gap"]).all()
    assert torch.equal(fitted.updates.gathered(), plain.updates.gathered())


def test_pool_takes_one_evaluation_per_round(data, monkeypatch):
    """One forward pass over all examples, for any number of queries."""
    population = Population(requirement=GivenRequirement((0.6,) * N), opting=Opting(2))
    simulation, seen = simulation_of(data, population=population, rounds=6, evaluate_every=6), []
    evaluate = Objective.evaluate

    def counted(self, params, batches):
        batches = list(batches)
        seen.append(sum(len(y) for _, y in batches))
        return evaluate(self, params, iter(batches))

    monkeypatch.setattr(Objective, "evaluate", counted)
    for round in range(5):
        simulation.opt_in.candidates(simulation.availability, simulation.state.version)
        simulation.opt_in.candidates(simulation.availability, simulation.state.version).everyone()
        simulation.round()
        assert seen == [len(data.train.x)] * max(round - 1, 0)
    assert simulation.history.rounds["pool"].to_pylist()[:2] == [N, N]
    assert min(simulation.history.rounds["pool"].to_pylist()) < N


def test_rates_are_unknown_with_opting_out(data):
    assert simulation_of(data).server.federation.rates is not None
    assert simulation_of(data, population=Population(opting=Opting())).server.federation.rates is None


def test_requirements_on_tests_need_test_examples(data):
    by_test = Population(requirement=GivenRequirement((0.9,) * N), opting=Opting(0, split="test"))
    simulation = simulation_of(data, population=by_test)
    pool = simulation.opt_in.pool(0)
    train, test = (by_client(simulation, shards)[0] < 0.9 for shards in (data.train, data.client_test))
    assert pool is not None
    assert pool.tolist() == np.where(data.client_test.sizes > 0, test, train).tolist()
    with pytest.raises(ConfigurationError, match=r"clients are to judge by their test examples, and have none: write"):
        simulation_of(replace(data, client_test=None), population=by_test)


def test_attackers_stay_in_the_pool_and_are_recorded(data):
    never = Population(
        requirement=GivenRequirement((0.0,) * N), opting=Opting(0, comes_back=False), behavior=Byzantine(0.25)
    )
    simulation = run(simulation_of(data, population=never))
    attackers = np.array(simulation.history.clients["byzantine"].to_pylist())
    assert attackers.sum() == 2
    assert simulation.history.rounds["pool"].to_pylist() == [2] * 4
    assert set(simulation.history.participation["client"].to_pylist()) == set(np.flatnonzero(attackers).tolist())
    assert "byzantine" not in run(simulation_of(data)).history.clients.column_names


def test_restart_does_not_repeat_training_of_own_models(data, tmp_path, monkeypatch):
    options = {
        "appeal": AppealMetrics(),
        "population": Population(requirement=WarmUp(5), opting=Opting(1, comes_back=False)),
    }
    first = run(simulation_of(data, **options))
    running.save_simulation(first, tmp_path)
    again = simulation_of(data, **options)  # which tries one client
    monkeypatch.setattr(ClientGroup, "scores_after", None)
    running.restore(again, tmp_path)
    for kind in ("seen", "unseen"):
        one, other = (simulation.opt_in.groups[kind].bound for simulation in (first, again))
        assert one is not None
        assert other is not None
        assert (one.train == other.train).all()
    assert (again.opt_in.pool(4) == first.opt_in.pool(4)).all()  # type: ignore[union-attr]


def test_diverged_own_model_requires_nothing(data):
    population = Population(requirement=WarmUp(lr=1e30))
    wild = simulation_of(data, population=population, appeal=AppealMetrics(), model=models.Mlp(hidden=(8,)))
    requirement = wild.opt_in.requirement
    assert requirement is not None
    assert requirement.train.tolist() == [np.finfo(float).max] * N
    assert run(wild).history.rounds["appeal_train"].to_pylist()[-1] == 1.0


def test_clients_with_personal_parts_are_evaluated_with_their_models(data):
    algorithm = fedavg(LOCAL, also=(Personal(),))
    options = {
        "model": models.Mlp(hidden=(8,)),
        "appeal": AppealMetrics(2),
        "population": Population(requirement=WarmUp(5)),
    }
    simulation = run(simulation_of(data, algorithm, **options))
    row, requirement = simulation.history.rounds.to_pylist()[-1], simulation.opt_in.requirement
    assert requirement is not None
    loss, _ = full_scores(simulation.workspace.clients(np.arange(N)), simulation.models.serving(np.arange(N)))
    assert row["appeal_train"] == pytest.approx((loss.numpy() < requirement.train).mean())
    assert "tuned_appeal_train" in row
    assert not any(name.startswith("unseen_appeal") for name in row)
