"""Clients that claim more examples or local steps than they can have: the report is refused with the reason."""

import numpy as np
import pytest
import torch
from safetensors.torch import load
from tests.laws.recipes import DATA, RECIPES

import turnout as to
from turnout import Experiment, Population, Sgd
from turnout.core.checks import ConfigurationError
from turnout.models import Mlp
from turnout.pieces.local import ShareOfWork, TimeBudget, UniformWork
from turnout.population.availability import Everyone
from turnout_serve.cli.serving import unlimited
from turnout_serve.server.options import Options
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.wire.assignment import Assignment
from turnout_serve.wire.format import WireError, encode
from turnout_serve.wire.messages import report_body
from turnout_serve.wire.surveys import SumsFormat, sums_body

from .test_failures import at_work
from .test_hostile import put, task_of, waiting
from .world import LOCAL


def run(name="fednova"):
    return Experiment(DATA, Mlp(hidden=(4,)), RECIPES[name](LOCAL), Population(Everyone()), rounds=2, evaluate_every=2)


def claiming(body, **counts):
    return encode(load(body) | {name: torch.tensor([value]) for name, value in counts.items()})


def test_report_of_more_steps_than_asked_for_is_refused(world):
    """FedNova multiplies the step by the mean number of steps, so one claim would ruin the model."""
    deployed = at_work(world(run()))
    client = next(home.row for home in deployed.homes if home.has_report)
    body = claiming(waiting(deployed.homes[client]), num_steps=1 << 40)
    answer = put(deployed, client, task := task_of(deployed, client), body)
    assert (answer.status, answer.table()["reason"]) == (
        422,
        "num_steps is 1099511627776, needed 0 to 1, the most that a task asks for",
    )
    assert deployed.host.service.state_of(client, task).body == {"state": "dropped", "reason": "died"}
    deployed.run()
    assert deployed.host.driver.params.norm() < 10.0


def test_max_examples_limits_reports_and_answers():
    """A private sum is not limited; an answer that was taken before counts, whatever the limit is now."""
    setting = ServedExperiment.of(run(), max_examples=20).setting
    zero = np.zeros(1, dtype=np.int64)
    body = report_body(setting.reports["train"].blank(zero, zero, setting.initial))
    body = claiming(body, num_examples=21)
    reason = r"num_examples is .*21.*, needed 0 to 20, the limit of this server \(max_examples, serve"
    with pytest.raises(WireError, match=reason):
        setting.reports["train"].read(body, 0, 0)
    assert setting.reports["train"].read(body, 0, 0, checked=True).num_examples == 21
    sums = setting.answer_format(Assignment(0, 0, "evaluate", 0, "0" * 64, 0, 1.0))
    assert isinstance(sums, SumsFormat)
    answer = sums_body({"num_examples": 21, "loss": 1.0, "score": 1.0})
    with pytest.raises(WireError, match=reason):
        sums.read(answer)
    assert sums.read(answer, checked=True)["num_examples"] == 21
    private = ServedExperiment.of(run("scaffold, private"), max_examples=20).setting.reports["train"]
    assert private.counts.max_examples is None
    with pytest.raises(ConfigurationError, match="max_examples: got 0"):
        Options(max_examples=0)


def test_start_of_a_server_tells_what_one_report_can_do():
    """Unless the option that limits it is given."""
    algorithm = to.fedadam(LOCAL)
    examples = "ByExamples weights a report by the number of examples that its client states: write --max-examples N"
    norm = "ServerAdam takes short steps for long after a single large update: write --max-norm N"
    told = f"{examples} against dishonest clients", f"{norm} against dishonest clients"
    assert unlimited(algorithm, Options()) == [*told]
    assert unlimited(algorithm, Options(max_norm=3.0)) == [told[0]]
    assert unlimited(algorithm, Options(max_examples=9)) == [told[1]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"steps": 5}, [5, 5]),
        ({"steps": UniformWork(2, 7)}, [7, 7]),
        ({"steps": TimeBudget(most=9)}, [9, 9]),
        ({"steps": TimeBudget()}, None),
        ({"steps": ShareOfWork(4, most=2.5)}, [10, 10]),
        ({"steps": ShareOfWork(UniformWork(1, 3), most=2.0)}, [6, 6]),
        ({"steps": ShareOfWork(4)}, None),
        ({"steps": None, "epochs": 3, "batch_size": 4}, [3, 9]),
        ({"steps": None, "epochs": 3, "batch_size": 4, "accumulate": 2}, [2, 5]),
        ({"steps": None, "epochs": UniformWork(1, 2), "batch_size": 4, "drop_last": True}, [2, 4]),
    ],
    ids=str,
)
def test_steps_are_limited_by_the_work(options, expected):
    limit = Sgd(**options).max_steps(np.array([4, 10]))
    assert (None if limit is None else limit.tolist()) == expected
