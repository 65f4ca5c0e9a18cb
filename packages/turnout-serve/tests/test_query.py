"""Queries: what clients of a server say of their data, before training, meanwhile and afterwards."""

import io
import json
import threading
import time

import numpy as np
import pytest
import torch
from rich.console import Console
from tests.laws.recipes import DATA

from turnout import Experiment, Population, ditto, fedau, models
from turnout.cli.settings import Settings
from turnout.evaluation.queries import Question
from turnout.pieces.aggregation import PrivateSum
from turnout.population.availability import Everyone
from turnout_serve.cli.commands.surveys import shown
from turnout_serve.cli.deployed import announced
from turnout_serve.client.computer import Computer
from turnout_serve.client.join import Connection
from turnout_serve.client.newcomer import Manners, Newcomer
from turnout_serve.client.session import Client
from turnout_serve.client.swarm import Swarm
from turnout_serve.client.worker import Worker
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.format import WireError
from turnout_serve.wire.surveys import SumsFormat, sums_body

from .test_administration import token_of
from .test_crashes import KILLS, live_all, reaper
from .test_evaluate import experiment
from .test_network import cli
from .test_privacy import private
from .world import LOCAL, REPEATS

__all__ = ["reaper"]
RUN = Experiment(DATA, models.Mlp(hidden=(4,)), fedau(LOCAL), Population(Everyone()), rounds=3)
LABELS = np.bincount(DATA.train.y.numpy(), minlength=16).tolist()


def answer(world, number):
    return json.loads((world.folder / "queries" / f"{number:08d}.json").read_text())


def ask(deployed, *question, **options):
    """Ask those who are there, and let them answer."""
    number = deployed.host.service.survey("query", question=Question(*question), **options)
    deployed.host.pump()
    for _ in range(4):
        for home in deployed.homes:
            home.turn(deployed.host)
    return answer(deployed, number.result())


def test_queries_are_answered_before_training(world):
    """A query needs no first round; clients answer it as they come, and train afterwards."""
    deployed = world(RUN, min_clients=9)  # which never are there
    for _ in range(3):
        deployed.round()
    assert deployed.host.driver.run is None
    found = ask(deployed, "label_histogram")
    assert (found["version"], found["asked"], found["answered"], found["lost"]) == (0, 8, 8, {})
    assert found["figures"]["counts"] == LABELS
    assert deployed.host.driver.publication.last is not None
    mean = ask(deployed, "mean")["figures"]["mean"]
    np.testing.assert_allclose(mean, DATA.train.x.double().mean(dim=0).numpy(), rtol=1e-12)


def test_client_answers_with_its_own_functions(world):
    deployed = world(RUN, min_clients=9)
    deployed.round()
    deployed.round()
    functions = {"length": lambda x, _: x.norm(dim=1), "broken": lambda x, _: x / None, "wide": lambda x, _: x}
    for row, home in enumerate(deployed.homes[:6]):
        home.client.trainer = Worker(deployed.computer, row, functions=functions)
    deployed.homes[5].client.trainer = Worker(deployed.computer, 5, allows=("evaluations",))
    found = ask(deployed, "mean", "length")
    assert (found["answered"], found["lost"]) == (5, {"refused": 1, "unknown": 2})
    x = torch.cat([DATA.train.client(row)[0] for row in range(5)])
    np.testing.assert_allclose(found["figures"]["mean"], [x.norm(dim=1).double().mean().item()], rtol=1e-6)
    for name in ("broken", "wide"):
        found = ask(deployed, "mean", name)
        assert (found["answered"], found["lost"]) == (0, {"died": 5, "refused": 1, "unknown": 2})


def test_finished_run_can_be_queried(world):
    """Its clients come back for the time that an evaluation stays open, and the model they judge is the last one."""
    deployed = world(experiment(ditto(LOCAL, cohort_size=8), rounds=2, evaluate_share=1.0)).run()
    deployed.host.service.writer.checkpoint()
    driver, service = deployed.host.driver, deployed.host.service
    before = driver.ledger.history.evaluations.table.to_pylist()
    service.survey("evaluate", seconds=60.0)
    deployed.host.pump()
    assert driver.over is None
    for row, home in enumerate(deployed.homes[:5]):  # three of eight do not come back, and are not asked
        home.session = Client(
            Newcomer(home.state, manners=Manners(wait=0.0)), Worker(deployed.computer, row, allows=REPEATS)
        ).session()
        home.action, home.over = next(home.session), None
        for _ in range(4):
            home.turn(deployed.host)
    deployed.clock.now += 61.0
    deployed.host.pump()
    assert driver.over == "the run is over"
    after = driver.ledger.history.evaluations.table.to_pylist()
    assert [(row["version"], row["asked"], row["answered"]) for row in after] == [(2, 8, 8), (2, 5, 5)]
    assert before[0].items() <= after[0].items()


def test_queries_of_private_runs_are_refused(world):
    deployed = world(private(PrivateSum(noise_multiplier=2.0)))
    with pytest.raises(
        Refused, match=r"the noise of this run does not cover them: write aggregation.answers.noise_multiplier=4"
    ):
        deployed.host.service.survey("query", question=Question("count"))


def test_open_queries_are_limited(world):
    deployed = world(RUN, min_clients=9)
    for _ in range(16):
        deployed.host.service.survey("query", question=Question("count"), seconds=60.0)
    deployed.host.pump()
    with pytest.raises(Refused, match="16 evaluations and queries go on"):
        deployed.host.service.survey("query", question=Question("count"))


WIDTHS = {"features": 2, "targets": 1, "classes": 3}


@pytest.mark.parametrize(
    ("question", "sums", "said"),
    [
        (Question("label_histogram"), {"num_examples": 3, "counts": [[1, 1, 2]]}, "counts do not add up"),
        (Question("label_histogram"), {"num_examples": 3, "counts": [[4, -1, 0]]}, "counts is .* needed 0 to 2\\^40"),
        (Question("mean"), {"num_examples": 3, "sums": [1.0, float("nan")]}, "sums holds NaN"),
        (Question("mean"), {"num_examples": 0, "sums": [0.0, 0.0]}, "num_examples is 0"),
        (Question("mean"), {"num_examples": 3, "sums": [1.0]}, "sums is F64"),
    ],
)
def test_impossible_answers_are_refused(question, sums, said):
    with pytest.raises(WireError, match=said):
        SumsFormat.of_query(question, WIDTHS).read(sums_body(sums))


def test_kill_during_a_query_loses_no_answer(world, folder, reaper):
    """Server and clients die again and again while clients answer one query after the other; every answer counts once."""
    deployed = world(
        RUN, folder=folder / "server", homes=folder / "homes", checkpoint_every=0.0, min_clients=9, allows=REPEATS
    )
    for _ in range(3):
        deployed.round()
    numbers = []
    while min(reaper.kills.values()) < (KILLS if KILLS > 10 else 3) or len(numbers) < 6:
        number = deployed.host.service.survey("query", question=Question("label_histogram"), seconds=None)
        deployed.host.pump()
        numbers.append(number.result())
        while deployed.host.driver.surveys.open:
            live_all(deployed, reaper)
        reaper.left = None
    for number in numbers:
        found = answer(deployed, number)
        assert (found["asked"], found["answered"], found["figures"]["counts"]) == (8, 8, LABELS)
    deployed.host.service.writer.checkpoint()
    again = replay(deployed.setting, deployed.folder)
    assert [closed.survey.request.number for closed in again.surveys] == numbers


def survey(deployed, **body):
    """Begin one as an administrator does."""
    return deployed.host.administer("POST", "surveys", **body)


def test_administrator_queries_over_http(world):
    deployed = world(RUN, min_clients=9)
    deployed.round()
    begun = survey(deployed, phase="query", question={"kind": "mean", "of": "targets"}, seconds=60)
    assert (begun.status, begun.table()) == (201, {"survey": 0})
    found = deployed.host.administer("GET", "surveys/0").table()
    assert (found["state"], found["asked"], found["answered"], found["lost"]) == ("open", 8, 0, {})
    deployed.clock.now += 61.0
    deployed.host.pump()
    found = deployed.host.administer("GET", "surveys/0").table()
    assert (found["state"], found["answered"], found["lost"]) == ("closed", 0, {"late": 8})
    assert survey(deployed, phase="evaluate", seconds=60).table() == {"survey": 1}
    deployed.clock.now += 61.0
    deployed.host.pump()
    found = deployed.host.administer("GET", "surveys/1").table()
    assert (found["phase"], found["version"], found["state"], found["lost"]) == ("evaluate", 0, "closed", {"late": 8})
    assert deployed.host.administer("GET", "surveys/2").status == 404
    assert deployed.host.administer("GET", "surveys/0", token=token_of(deployed, 0)).status == 403


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "phase is missing"),
        ({"phase": "train"}, "phase is 'train': input should be 'evaluate' or 'query'"),
        ({"phase": "query"}, "a query has a question, and an evaluation none"),
        ({"phase": "evaluate", "question": {"kind": "count"}}, "a query has a question, and an evaluation none"),
        ({"phase": "query", "question": {"kind": "median"}}, "unknown value of kind 'median'"),
        ({"phase": "query", "question": {"kind": "mean", "where": 1}}, "where"),
        ({"phase": "query", "question": {"kind": "mean", "column": 99}}, "column: got 99"),
        ({"phase": "query", "question": {"kind": "histogram", "edges": list(range(200))}}, "at most 128"),
        ({"phase": "evaluate", "share": 2}, "share is 2: input should be less than or equal to 1"),
        ({"phase": "evaluate", "seconds": -1}, "seconds is -1: input should be greater than or equal to 0"),
    ],
)
def test_invalid_queries_are_refused(world, body, said):
    answered = survey(world(RUN, min_clients=9), **body)
    assert answered.status == 400
    assert said in answered.reason


def test_query_command_prints_the_answer(folder):
    """Over a socket, with the token in the server's folder, while a swarm is there and training has not begun."""
    settings = {"data": {"name": "digits", "num_clients": 4, "client_test_fraction": 0.3}, "rounds": 2}
    run = Settings.of({"algorithm": "fedau", "model": "logistic", "availability": "everyone", **settings})
    made = Server(run.experiment(), folder, announced(run), Options(port=0, min_clients=5, rate=0))
    with made.listening() as url:
        swarm = Swarm(
            Computer(run.experiment(), "vectorized"), Connection(url), 4, manners=Manners(wait=0.2, longest=0.1)
        )
        thread = threading.Thread(target=swarm.run, args=(20.0,), daemon=True)
        thread.start()
        while len(made.driver.roster.present()) < 4:
            made.service.survey(
                "query", question=Question("count"), seconds=0.0
            ).result()  # has the journal take the visits
            time.sleep(0.05)
        token = ("--token", folder / "admin.token")
        said = cli("query", url, "label_histogram", *token)
        assert "4 of 4 clients have answered" in said
        found = json.loads(cli("query", url, "quantiles", "--of", "targets", "--edges", "0,5,10", "--json", *token))
        assert found["figures"]["counts"][0][0] == 0
        found = json.loads(cli("evaluate", url, "--json", *token))
        page = Console(width=200, file=io.StringIO(), record=True)
        page.print(shown(found))
        assert "test accuracy" in page.export_text()
        assert (found["answered"], found["version"], found["lost"]) == (4, 0, {})
        assert 0.0 <= found["figures"]["test_accuracy"] <= 1.0
        assert "others: 4 unknown" in cli("query", url, "mean", "--of", "income", *token)
        assert "edges: got 'a,b'" in cli("query", url, "histogram", "--edges", "a,b", *token, code=2)
        assert "column: got 64" in cli("query", url, "mean", "--column", "64", *token, code=1)
