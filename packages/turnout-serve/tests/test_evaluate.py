"""Clients of a server judge its models by their own test examples: the figures of a simulation, through tasks and journal."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import SIZES, classification
from torch import nn

from turnout import AppealMetrics, Experiment, Population, Sgd, ditto, fedau, fedavg_p, fedrep, maxfl, models
from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.evaluation.fairness import fairness
from turnout.evaluation.sums import SumsForm
from turnout.population.availability import Everyone
from turnout.population.requirement import WarmUp
from turnout.record.query import History
from turnout.reporting.report import write_report
from turnout.results.records import RunRecord
from turnout.results.table import cells, comparison
from turnout.simulation import Simulation
from turnout_serve.client.worker import Worker
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.format import WireError
from turnout_serve.wire.surveys import SumsFormat, sums_body

from .test_crashes import KILLS, live_all, reaper

__all__ = ["reaper"]

LOCAL = Sgd(lr=0.05, steps=2, batch_size=4)
ALL = range(len(SIZES))


def held_out(holders=ALL, dtype=torch.float64, sizes=SIZES):
    """Clients of whom some hold test examples of their own."""
    train = classification(sizes, dtype=dtype)
    sizes = [4 + row if row in holders else 0 for row in range(len(sizes))]
    assert train.test is not None
    held = Shards(train.test.x[: sum(sizes)], train.test.y[: sum(sizes)], np.concatenate([[0], np.cumsum(sizes)]))
    return FederatedData("held out", train.train, 4, client_test=held)


def hinge(outputs, targets):
    """One number for each example, whose mean is the figure."""
    return (1 - outputs.gather(1, targets[:, None])[:, 0]).clamp(min=0)


def experiment(algorithm, data=None, **options):
    population = Population(Everyone(), requirement=WarmUp(steps=2))
    options = {"rounds": 4, "evaluate_every": 2, "evaluate_share": 1.0, "population": population, **options}
    return Experiment(held_out() if data is None else data, models.Mlp(hidden=(4,)), algorithm, **options)


PLAIN = {"appeal": AppealMetrics(), "label_groups": ((0, 1), (3,)), "metrics": (hinge,)}


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (maxfl(LOCAL, cohort_size=3), PLAIN),
        (fedrep(LOCAL, share=0.5, cohort_size=3), {"metrics": (hinge,)}),
        (ditto(LOCAL, cohort_size=3), {}),
        (fedavg_p(LOCAL, cohort_size=3), {}),
    ],
)
def test_served_figures_equal_simulated_figures(world, algorithm, options):
    """Compared are all columns about test examples, in every round and for every client, also of personal models."""
    run = experiment(algorithm, **options)
    deployed, simulation = world(run).run(), Simulation(run)
    for _ in range(run.rounds):
        simulation.round()
    simulation.finish()
    last = deployed.host.service.writer.figures.status["curves"]["test_accuracy"][
        -1
    ]  # of the evaluation that ended behind the last step
    deployed.host.service.writer.checkpoint()
    served, simulated = History.load(deployed.folder), simulation.history
    assert last == (4, served.column("test_accuracy")[1][-1])
    names = [name for name in simulated.column_names if name.startswith(("test_", "appeal_", "client_", "preferred_"))]
    assert {"test_loss", "test_accuracy"} <= set(names)
    for name in names:
        rounds, values = simulated.column(name)
        np.testing.assert_array_equal(served.column(name)[0], rounds, name)
        np.testing.assert_allclose(served.column(name)[1], values, rtol=1e-12, atol=0, err_msg=name)
    for name in [name for name in simulated.clients.column_names if name.startswith("test_")]:
        ours, theirs = served.client_column(name), simulated.client_column(name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=0, err_msg=name)
    of_clients = fairness(simulated.client_column("test_accuracy"))
    table = served.evaluations.table.to_pylist()
    assert [(row["version"], row["asked"], row["answered"]) for row in table] == [(2, 8, 8), (4, 8, 8)]
    for name, value in of_clients.items():
        assert table[-1][f"client_test_{name}"] == pytest.approx(value, rel=1e-12), name
    assert ("shared_test_accuracy" in table[-1]) == (algorithm.personal is not None)


def test_clients_without_test_examples_are_counted_as_not_answering(world):
    run = experiment(maxfl(LOCAL, cohort_size=3), held_out(range(5)), rounds=2)
    history = world(run).run().host.driver.ledger.history
    (row,) = history.evaluations.table.to_pylist()
    assert (row["asked"], row["answered"], row["lost_no_test_examples"]) == (8, 5, 3)
    assert history.column("evaluation_asked")[1].tolist() == [8]
    assert history.column("evaluation_answered")[1].tolist() == [5]


def test_share_of_clients_is_redrawn_for_each_evaluation(world):
    run = experiment(maxfl(LOCAL, cohort_size=3), rounds=8, evaluate_every=1, evaluate_share=0.4)
    history = world(run, min_answers=1).run().host.driver.ledger.history
    cohorts = [history.evaluations.answers(number).clients.tolist() for number in range(8)]
    assert all(1 <= len(cohort) < 8 for cohort in cohorts)
    assert len({tuple(cohort) for cohort in cohorts}) > 4


def test_evaluations_do_not_change_training(world, folder):
    """The model and the participation are the same with and without evaluations."""
    run = experiment(fedrep(LOCAL, share=0.5, cohort_size=3))
    with_them = world(run, folder=folder / "with").run().host.driver
    without = world(replace(run, evaluate_share=0.0), folder=folder / "without").run().host.driver
    assert torch.equal(with_them.params, without.params)
    assert with_them.ledger.history.participation.equals(without.ledger.history.participation)


def test_replay_has_the_same_answers(world):
    deployed = world(experiment(ditto(LOCAL, cohort_size=3))).run()
    again = replay(deployed.setting, deployed.folder)
    assert again.same in (True, None)
    kept = deployed.host.driver.ledger.history.evaluations
    assert len(again.surveys) == len(kept) == 2
    for closed in again.surveys:
        answers = kept.answers(closed.survey.request.number)
        np.testing.assert_array_equal(closed.clients, answers.clients)
        for name, values in closed.sums.items():
            np.testing.assert_array_equal(values, answers.sums[name])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"evaluate_share": 0.0, "appeal": AppealMetrics()}, "or write evaluate_share=1.0"),
        ({"evaluate_share": 0.0, "label_groups": ((0,),)}, "label_groups: this looks at the data of all clients"),
        ({"appeal": AppealMetrics(tuning_steps=3)}, "leave tuning_steps out"),
        ({"metrics": ("f1",)}, "f1 returns one figure for all examples together"),
    ],
)
def test_options_that_clients_cannot_evaluate_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        ServedExperiment.of(experiment(maxfl(LOCAL, cohort_size=3), **options))


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_share_outside_0_to_1_is_refused(share):
    with pytest.raises(ConfigurationError, match="evaluate_share: got"):
        experiment(maxfl(LOCAL, cohort_size=3), evaluate_share=share)


def test_kill_at_any_write_loses_no_answer(world, folder, reaper):
    """Server and clients die while they write, again and again: no answer is lost, and none counts twice."""
    run = experiment(
        ditto(LOCAL, cohort_size=5), held_out(range(5), sizes=SIZES[:5]), rounds=max(4, KILLS // 2), evaluate_every=1
    )
    whole = world(run, folder=folder / "whole").run().host.driver
    deployed = world(run, folder=folder / "server", homes=folder / "homes", checkpoint_every=0.0)
    while not all(home.over for home in deployed.homes):
        live_all(deployed, reaper)
    reaper.left = None
    assert min(reaper.kills.values()) >= KILLS
    deployed.host.service.writer.checkpoint()
    driver = deployed.host.driver
    assert torch.equal(driver.params, whole.params)
    expected = whole.ledger.history.evaluations.table
    assert driver.ledger.history.evaluations.table.equals(expected)
    assert History.load(deployed.folder).evaluations.table.equals(expected)
    assert [row["answered"] for row in expected.to_pylist()] == [5] * run.rounds
    assert replay(deployed.setting, deployed.folder).same is True


def test_client_may_decline_evaluations_and_train(world):
    deployed = world(experiment(maxfl(LOCAL, cohort_size=8), rounds=2))
    deployed.homes[3].client.trainer = Worker(deployed.computer, 3, allows=("queries",))
    history = deployed.run().host.driver.ledger.history
    (row,) = history.evaluations.table.to_pylist()
    assert (row["answered"], row["lost_refused"]) == (7, 1)
    assert history.participation.num_rows == 2 * 8


def test_evaluation_ends_without_absent_or_silent_clients(world):
    """A client that returns is asked again; after ten minutes the evaluation ends, and with it the run."""
    deployed = world(experiment(maxfl(LOCAL, cohort_size=3), rounds=1))
    for home in deployed.homes:  # all are there; the last one to come has the server begin
        home.step(deployed.host)
    deployed.host.pump()
    driver, service = deployed.host.driver, deployed.host.service
    gone, back, silent = [home for row, home in enumerate(deployed.homes) if driver.tasks.training_of(row) is None][:3]
    absent = [deployed.homes.index(home) for home in (gone, back, silent)]
    for home in [home for row, home in enumerate(deployed.homes) if row not in absent] * 3:
        home.turn(deployed.host)
    assert driver.version == 1
    for row in absent[:2]:
        service.leave(row)
    deployed.host.pump()
    assert driver.task_of(absent[0]) is None
    for _ in range(4):
        back.turn(deployed.host)
    assert driver.over is None
    deployed.clock.now += 601.0
    deployed.host.pump()
    assert driver.over == "the run is over"
    (row,) = driver.ledger.history.evaluations.table.to_pylist()
    assert (row["asked"], row["answered"], row["lost_left"], row["lost_late"]) == (8, 6, 1, 1)


GOOD = {"num_examples": 4, "loss": 2.0, "score": 3.0}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"score": 5.0}, "score is .* needed 0 to num_examples"),
        ({"score": -1.0}, "score is"),
        ({"num_examples": -1}, "needed 0 to 2\\^40"),
        ({"num_examples": 0, "score": 0.0}, "a client without examples declines"),
        ({"loss": float("nan")}, "loss holds NaN or infinity"),
        ({"loss": float("inf")}, "loss holds NaN or infinity"),
        ({"loss": 1.7e308}, "loss is beyond 1e100"),
        ({"loss": -1.1e100}, "loss is beyond 1e100"),
        ({"more": 1.0}, "nobody asked for 'more'"),
        ({"appeal_train": 2.0}, "needed 0 to 1"),
        ({"group_score": [1.0, 2.0]}, "group_score is"),
    ],
)
def test_impossible_answers_are_refused(wrong, said):
    form = SumsForm(appeal="appeal_train" in wrong, groups=((0,), (1,)) if "group_score" in wrong else (), alone=False)
    more = {name: [1, 1] if name == "group_examples" else 0.0 for name in form.shapes if name not in GOOD}
    with pytest.raises(WireError, match=said):
        SumsFormat.of_evaluation(form).read(sums_body(GOOD | more | wrong))


def test_report_page_has_the_number_of_answers(world):
    """Tables and pages show mean, worst tenth and spread over clients, and never without the number who answered."""
    run = experiment(fedau(LOCAL), held_out(range(6)), rounds=2)
    deployed = world(run).run()
    deployed.host.service.writer.checkpoint()
    record = RunRecord("fedau", 0, History.load(deployed.folder))
    (row,) = comparison([record])
    assert (row.figures["evaluation_asked"].mean, row.figures["evaluation_answered"].mean) == (8.0, 6.0)
    keys, _ = cells([row])
    assert {"client_test_worst", "client_test_spread", "evaluation_asked", "evaluation_answered"} <= set(keys)
    page = write_report([record], deployed.folder / "report.html").read_text()
    assert "clients who answered the last evaluation" in page
    assert "test accuracy, worst 10 % of clients (%)" in page


def test_unseen_clients_have_figures_of_their_own(world):
    """With a cohort of three, clients that no step has used before the first evaluation are unseen."""
    deployed = world(experiment(maxfl(LOCAL, cohort_size=3), rounds=1, label_groups=((0,),))).run()
    history = deployed.host.driver.ledger.history
    drawn = set(history.participation["client"].to_pylist())
    answers = history.evaluations.answers(0)
    assert {client for client, seen in zip(answers.clients.tolist(), answers.seen, strict=True) if seen} == drawn
    unseen = [row for row, client in enumerate(answers.clients.tolist()) if client not in drawn]
    right, number = answers.sums["score"][unseen].sum(), answers.sums["num_examples"][unseen].sum()
    assert history.column("unseen_test_accuracy")[1].tolist() == [right / number]


def test_evaluation_that_nobody_answers_leaves_recorded_figures(world):
    """Asked again with everybody gone, the step keeps its figures; also where the tables are loaded again."""
    deployed = world(experiment(fedau(LOCAL), held_out(range(6)), rounds=2, evaluate_every=2)).run()
    driver = deployed.host.driver
    recorded = dict(driver.ledger.history.evaluations.by_round)
    assert recorded[2]["evaluation_answered"] == 6.0
    deployed.host.service.survey("evaluate", 1.0, 1.0)
    deployed.host.pump()
    deployed.clock.now += 2.0
    deployed.host.pump()
    rows = driver.ledger.history.evaluations.table.to_pylist()
    assert [(row["evaluation"], row["answered"]) for row in rows] == [(0, 6), (1, 0)]
    assert driver.ledger.history.evaluations.by_round == recorded
    deployed.host.service.writer.checkpoint()
    assert History.load(deployed.folder).evaluations.by_round == recorded


@pytest.mark.parametrize("algorithm", [fedau(LOCAL), ditto(LOCAL, cohort_size=3)])
def test_served_accuracies_of_one_output_are_those_of_its_sign(world, algorithm):
    """A model with one logit for two classes: figures of the server equal those of a simulation and of the model itself."""
    data = held_out()
    assert data.client_test is not None
    halves = {name: replace(shards, y=shards.y % 2) for name, shards in data.splits.items()}
    data = FederatedData("two classes", halves["train"], 2, client_test=halves["client_test"])
    model = nn.Sequential(nn.Linear(16, 1)).double()
    run = replace(experiment(algorithm, data), model=model, loss=nn.BCEWithLogitsLoss(), population=Population())
    deployed, simulation = world(run).run(), Simulation(run)
    for _ in range(run.rounds):
        simulation.round()
    deployed.host.service.writer.checkpoint()
    served = History.load(deployed.folder)
    for name in ("test_accuracy", "test_loss"):
        np.testing.assert_allclose(served.column(name)[1], simulation.history.column(name)[1], rtol=1e-12, err_msg=name)
    if algorithm.personal is None:
        tests = halves["client_test"]
        outputs = nn.functional.linear(tests.x, *simulation.objective.layout.split(simulation.state.params).values())
        right = (outputs[:, 0] > 0) == (tests.y == 1)
        assert served.column("test_accuracy")[1][-1] == pytest.approx(float(right.double().mean()))
