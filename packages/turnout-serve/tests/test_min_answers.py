"""Figures of evaluations and queries that too few clients have answered are published nowhere."""

import json

import numpy as np
import pytest

import turnout as to
from turnout.evaluation.queries import Question
from turnout.evaluation.sums import TotalSums
from turnout.record.evaluations import Evaluations
from turnout_serve.cli.commands.surveys import shown
from turnout_serve.server.http.status import metrics, status
from turnout_serve.server.options import Options

from .test_evaluate import experiment, held_out
from .test_summed_answers import N, ask, run, there
from .world import LOCAL


def silent(deployed, answering):
    """Clients of later rows stay there and decline."""
    for home in deployed.homes[answering:]:
        home.client.trainer.declines = lambda task: "refused" if task.phase in ("evaluate", "query") else None


@pytest.mark.parametrize("question", [None, Question("label_histogram"), Question("mean")])
@pytest.mark.parametrize(
    ("answering", "least", "published"), [(1, 3, False), (2, 3, False), (3, 3, True), (2, 2, True)]
)
def test_figures_of_fewer_are_published_nowhere(world, question, answering, least, published):
    deployed = there(world, run(), min_answers=least)
    silent(deployed, answering)
    found = ask(deployed, question)
    assert (found["asked"], found["answered"], found["lost"]) == (N, answering, {"refused": N - answering})
    assert bool(found.get("figures")) == published
    why = f"{answering} client{'s' * (answering > 1)} answered, and figures of fewer than 3 are not published"
    assert found.get("unopened") == (None if published else why)
    assert (f"no figures: {why}" in str(shown(found).renderables[-1])) != published
    if question is not None:
        return
    body = status(deployed.host.service, 0, {})
    assert body.evaluation is not None
    assert (body.evaluation.answered, bool(body.evaluation.figures)) == (answering, published)
    assert ("turnout_evaluation{" in metrics(body)) == published
    assert ("test_accuracy" in json.dumps(body.fields()["evaluation"])) == published
    saved = Evaluations.load(deployed.folder)
    assert saved.table["answered"].to_pylist() == [answering]
    answers = saved.answers(0)
    assert bool(answers.figures()) == published
    if not published:  # not even in the run's folder
        assert isinstance(answers, TotalSums)
        assert not any(np.any(total) for total in answers.total.values())
    deployed.restart()
    assert (deployed.host.driver.ledger.evaluation or found)["answered"] == answering


def test_evaluations_on_schedule_need_as_many(world):
    """A share that draws few clients fills no figure of the table of rounds."""
    algorithm = to.fedau(LOCAL)
    served = experiment(algorithm, held_out(range(N)), rounds=6, evaluate_every=1, evaluate_share=0.4)
    deployed = world(served).run()
    evaluations = deployed.host.driver.ledger.history.evaluations
    rows = evaluations.table.to_pylist()
    assert {row["answered"] >= 3 for row in rows} == {True, False}
    for row in rows:
        assert (row.get("test_accuracy") is not None) == (row["answered"] >= 3)
    by_round = evaluations.by_round
    assert {version for version in by_round if "test_accuracy" in by_round[version]} == {
        row["version"] for row in rows if row["answered"] >= 3
    }


@pytest.mark.parametrize("wrong", [0, -1, 2.5])
def test_impossible_numbers_of_answers_are_refused(wrong):
    with pytest.raises(to.ConfigurationError, match="min_answers: got"):
        Options(min_answers=wrong)
