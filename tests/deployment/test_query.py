"""Queries: what clients of a server say of their data, before training, meanwhile and afterwards."""

import json

import numpy as np
import pytest
import torch

from turnout import Experiment, Population, ditto, fedau, models
from turnout.deployment.client.session import Client, Manners
from turnout.deployment.client.worker import Worker
from turnout.deployment.server.replay import replay
from turnout.deployment.server.verdicts import Refused
from turnout.deployment.wire.format import WireError
from turnout.deployment.wire.surveys import SumsFormat, sums_body
from turnout.evaluation.queries import Question
from turnout.pieces.aggregation import PrivateSum
from turnout.population.availability import Everyone

from ..laws.recipes import DATA, LOCAL
from .test_crashes import KILLS, live, reaper
from .test_evaluate import experiment
from .test_privacy import private

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


def test_a_federation_is_known_before_training(world):
    """A query needs no first round; clients answer it as they come, and train afterwards."""
    deployed = world(RUN, min_clients=9)  # which never are there
    for _ in range(3):
        deployed.round()
    assert not deployed.host.driver.started
    found = ask(deployed, "label_histogram")
    assert (found["version"], found["asked"], found["answered"], found["lost"]) == (0, 8, 8, {})
    assert found["figures"]["counts"] == LABELS
    assert deployed.host.driver.digest is not None
    mean = ask(deployed, "mean")["figures"]["mean"]
    np.testing.assert_allclose(mean, DATA.train.x.double().mean(dim=0).numpy(), rtol=1e-12)


def test_a_client_answers_with_functions_of_its_own(world):
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


def test_a_run_that_is_over_is_asked_again(world):
    """Its clients come back for the time that an evaluation stays open, and the model they judge is the last one."""
    deployed = world(experiment(ditto(LOCAL, cohort_size=8), rounds=2, evaluate_share=1.0)).run()
    deployed.host.service.finish()
    driver, service = deployed.host.driver, deployed.host.service
    before = driver.ledger.history.evaluations.table.to_pylist()
    service.survey("evaluate", seconds=60.0)
    deployed.host.pump()
    assert driver.over is None
    for row, home in enumerate(deployed.homes[:5]):  # three of eight do not come back
        home.session = Client(home.state, Worker(deployed.computer, row), manners=Manners(wait=0.0)).session()
        home.action, home.over = next(home.session), None
        for _ in range(4):
            home.turn(deployed.host)
    deployed.clock.now += 61.0
    deployed.host.pump()
    assert driver.over == "the run is over"
    after = driver.ledger.history.evaluations.table.to_pylist()
    assert [(row["version"], row["asked"], row["answered"]) for row in after] == [(2, 8, 8), (2, 8, 5)]
    assert after[1]["lost_late"] == 3
    assert before[0].items() <= after[0].items()


def test_private_runs_are_not_asked(world):
    deployed = world(private(PrivateSum(noise_multiplier=2.0)))
    with pytest.raises(Refused, match="which the noise of this run does not cover"):
        deployed.host.service.survey("query", question=Question("count"))


def test_no_more_than_sixteen_go_on(world):
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
def test_answers_that_no_data_have_are_refused(question, sums, said):
    with pytest.raises(WireError, match=said):
        SumsFormat.of_query(question, WIDTHS).read(sums_body(sums))


def test_kills_during_queries(world, folder, reaper):
    """Server and clients die again and again while clients answer one query after the other; every answer counts once."""
    deployed = world(RUN, folder=folder / "server", homes=folder / "homes", checkpoint_every=0.0, min_clients=9)
    for _ in range(3):
        deployed.round()
    numbers = []
    while min(reaper.kills.values()) < (KILLS if KILLS > 10 else 3) or len(numbers) < 6:
        number = deployed.host.service.survey("query", question=Question("label_histogram"), seconds=None)
        deployed.host.pump()
        numbers.append(number.result())
        while deployed.host.driver.surveys.open:
            for row in range(len(deployed.homes)):
                if reaper.left is None:
                    reaper.arm()
                live(deployed, row)
        reaper.left = None
    for number in numbers:
        found = answer(deployed, number)
        assert (found["asked"], found["answered"], found["figures"]["counts"]) == (8, 8, LABELS)
    deployed.host.service.finish()
    again = replay(deployed.setting, deployed.folder)
    assert [closed.survey.asked.number for closed in again.surveys] == numbers
