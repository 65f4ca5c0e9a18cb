"""What fails in an evaluation fails before the first round, and signals are obeyed during an evaluation."""

import os
import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.evaluation import gradients
from turnout.pieces.local import Contrastive
from turnout.simulation import Simulation, metrics

from ..tiny import classification

DATA = classification()


class NoisyInEvaluation(nn.Linear):
    """Draws random numbers in evaluation mode alone."""

    def forward(self, input):
        return super().forward(input) if self.training else super().forward(input) + torch.rand(())


class CountsEvaluations(nn.Linear):
    """Changes a buffer in evaluation mode alone."""

    def __init__(self):
        super().__init__(16, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, input):
        if not self.training:
            self.calls += 1
        return super().forward(input)


class FailsInEvaluation(nn.Linear):
    def forward(self, input):
        return super().forward(input) if self.training else super().forward(input)[:, :3]


@pytest.mark.parametrize("algorithm", [to.fedavg(), to.ditto(cohort_size=2), to.fedper(cohort_size=2)])
@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (NoisyInEvaluation(16, 4), r"draws random numbers in forward\(\) in evaluation mode"),
        (CountsEvaluations(), "changes its buffer '0.calls'"),
        (FailsInEvaluation(16, 4), "3 outputs for 4 classes"),
    ],
)
def test_models_are_tried_in_evaluation_mode(algorithm, layer, message):
    module = nn.Sequential(layer, nn.Identity()) if algorithm.personal is None else nn.Sequential(layer)
    if algorithm.name == "fedper":
        module = nn.Sequential(nn.Linear(16, 16), layer)
        message = message.replace("'0.", "'1.")
    with pytest.raises(ConfigurationError, match=message):
        Simulation(to.Experiment(DATA, module, algorithm, rounds=20))


def of_two_classes(outputs, targets):
    """A metric that fails on clients with one class, as some of scikit-learn do."""
    if len(targets.unique()) < 2:
        raise ValueError("only one class is present")
    return outputs.mean()


def whole(outputs, targets):
    """A metric that does not return a number."""
    return outputs, targets


@pytest.mark.parametrize("algorithm", [to.fedavg(), to.ditto(cohort_size=2)])
def test_metrics_are_tried_on_every_client_before_the_first_round(algorithm):
    x, y = torch.randn(40, 16), torch.arange(40) % 4
    y[30:] = 1
    data = to.data.from_arrays(x, y, client_ids=torch.arange(40) // 10).split()
    metric: Any
    message = r"metric of_two_classes failed on outputs \(\d+, 4\) .*only one class is present; write .*returns nan"
    for metric, said in ((of_two_classes, message), (whole, "(?s)metric whole: got .*needed a number")):
        with pytest.raises(ConfigurationError, match=said):
            Simulation(to.Experiment(data, nn.Linear(16, 4), algorithm, rounds=20, metrics=(metric,)))


def test_test_examples_of_another_shape_fail_before_the_first_round():
    assert DATA.test is not None
    longer = Shards.pooled(torch.randn(8, 17), torch.arange(8) % 4)
    with pytest.raises(ConfigurationError, match=r"does not fit the test data: it failed with: .*16"):
        Simulation(to.Experiment(replace(DATA, test=longer), nn.Linear(16, 4), rounds=20))


def test_signals_are_obeyed_during_an_evaluation(monkeypatch, tmp_path):
    """The process is asked to end in the middle of the first evaluation of a round."""
    monkeypatch.setattr(metrics, "_SECONDS", 0.0)
    calls = []

    class Slow(nn.Linear):
        def forward(self, input):
            if not self.training and len(input) == 500:
                calls.append(time.monotonic())
                if len(calls) == 3:
                    os.kill(os.getpid(), signal.SIGINT)
            return super().forward(input)

    x, y = torch.randn(10_000, 4), torch.arange(10_000) % 2
    data = to.data.from_arrays(x, y).split(to.partition.Iid(), num_clients=10)
    run = to.Experiment(data, Slow(4, 2), to.fedavg(to.Sgd(steps=1)), rounds=1, engine="one_by_one")
    with pytest.raises(to.Interrupted, match=r"stopped within a round, at evaluation \(\d of 10 clients\)"):
        run.run(tmp_path)
    assert len(calls) < 16


def test_a_label_far_above_the_others_is_named():
    y = torch.arange(60) % 10
    y[7] = 1_000_000
    message = (
        r"labels: 1000000 would make 1,000,001 classes, and 11 different labels occur, below which the largest is 9"
    )
    with pytest.raises(DataError, match=message):
        FederatedData("wrong", Shards.pooled(torch.randn(60, 2), y))
    assert FederatedData("declared", Shards.pooled(torch.randn(60, 2), y), 1_000_001).num_classes == 1_000_001
    assert FederatedData("few of many", Shards.pooled(torch.randn(60, 2), y.clamp(max=99))).num_classes == 100
    tokens = torch.full((2, 3), 50_000)
    assert FederatedData("tokens", Shards.pooled(tokens, tokens)).num_classes == 50_001


def test_a_label_of_tokens_far_above_the_others_is_named():
    tokens = torch.arange(120).reshape(20, 6) % 30
    assert FederatedData("tokens", Shards.pooled(tokens, tokens)).num_classes == 30
    far = tokens.clone()
    far[3, 4] = 1_000_000
    message = (
        r"labels: 1000000 would make 1,000,001 classes, and 31 .*the largest is 29: .* write -100 for labels that do"
    )
    with pytest.raises(DataError, match=message):
        FederatedData("wrong", Shards.pooled(tokens, far))
    assert FederatedData("declared", Shards.pooled(tokens, far), 1_000_001).num_classes == 1_000_001
    sparse = tokens * 1700  # few tokens of a large vocabulary
    assert FederatedData("sparse", Shards.pooled(sparse, sparse)).num_classes == 29 * 1700 + 1
    sparse[0, 1:] = -100
    assert FederatedData("ignored", Shards.pooled(tokens, sparse)).num_classes == 29 * 1700 + 1


def test_terms_of_the_loss_are_tried_before_the_first_round():
    with pytest.raises(ConfigurationError, match="has one layer with trainable parameters, and a representation is"):
        Simulation(to.Experiment(DATA, to.models.Logistic(), to.moon(), rounds=20))
    simulation = Simulation(to.Experiment(DATA, to.models.Mlp(hidden=(4,)), to.moon(), rounds=20))
    assert not simulation.memory.gather(np.zeros(1, dtype=np.int64))["contrast_known"].any()


def test_figures_that_are_always_recorded_and_classes_of_models_are_explained():
    with pytest.raises(
        ConfigurationError, match="every evaluation records accuracy where it is defined, for every split"
    ):
        to.Experiment(DATA, to.models.Logistic(), metrics=("accuracy",))
    with pytest.raises(ConfigurationError, match=r"write Linear\(...\), the module itself"):
        to.Experiment(DATA, nn.Linear)  # type: ignore[arg-type]


@pytest.mark.parametrize("personal", [to.personalization.Personal("head"), to.personalization.Frozen()])
def test_contrastive_terms_need_the_whole_model(personal):
    with pytest.raises(ConfigurationError, match="only a part of the model is received: leave one out"):
        to.compose(to.Sgd(), Contrastive(), personal)
    to.compose(to.Sgd(), Contrastive(), to.personalization.Ditto())


def unseen_data():
    """Return training clients and clients that never train, which alone have inputs above 100."""
    data = classification()
    apart = Shards(DATA.train.x[:12] + 200.0, DATA.train.y[:12], np.array([0, 6, 12]))
    return replace(data, unseen_train=apart, unseen_test=apart)


class RejectsTraining(nn.Linear):
    """Fails in training mode on inputs above 100, which only clients that never train have."""

    def forward(self, input):
        if self.training and input.max() > 100:
            raise ValueError("an input is above 100")
        return super().forward(input)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": to.ditto(cohort_size=2)},
        {"algorithm": to.fedavg(), "appeal": to.AppealMetrics()},
        {"algorithm": to.fedavg(), "appeal": to.AppealMetrics(tuning_steps=1)},
    ],
)
def test_unseen_clients_are_tried_before_the_first_round(options):
    """They train only in the last evaluation, or in the first one with requirements."""
    run = to.Experiment(unseen_data(), RejectsTraining(16, 4), rounds=20, engine="one_by_one", **options)
    with pytest.raises(ConfigurationError, match="an input is above 100"):
        Simulation(run)


def test_what_evaluations_compute_beside_scores_is_tried_before_the_first_round(monkeypatch, tmp_path):
    """The gradients of one client are computed once, and a table of requirements is read."""
    seen, full = [], gradients.full_gradient
    monkeypatch.setattr(
        gradients, "full_gradient", lambda clients, *rest: seen.append(len(clients)) or full(clients, *rest)
    )
    Simulation(to.Experiment(DATA, nn.Linear(16, 4), rounds=20, gradients=to.GradientMetrics()))
    assert seen == [1]
    table = tmp_path / "requirements.csv"
    table.write_text("client,requirement\n0,0.5\n")
    population = to.Population(requirement=to.requirement.GivenRequirement(str(table)))
    with pytest.raises(DataError, match="requirements"):
        Simulation(to.Experiment(DATA, nn.Linear(16, 4), rounds=20, population=population, appeal=to.AppealMetrics()))


def test_trials_leave_a_run_as_it_was():
    """Personal models, requirements and figures are those of a run without a trial."""
    run = to.Experiment(
        unseen_data(),
        nn.Linear(16, 4),
        to.ditto(cohort_size=2),
        rounds=2,
        evaluate_every=1,
        gradients=to.GradientMetrics(),
    )
    rounds = []
    for tried in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not tried:
                patch.setattr(Simulation, "_try_figures", lambda *_: None)
            rounds.append(run.run().rounds.drop_columns(["seconds"]))
    assert rounds[0].equals(rounds[1])


def test_the_largest_token_of_test_examples_is_tried():
    """One of 60 test examples has a token beyond the vocabulary."""
    x = torch.arange(120).reshape(60, 2) % 10
    beyond = x.clone()
    beyond[37, 1] = 10
    data = FederatedData("tokens", Shards.pooled(x, x % 2), test=Shards.pooled(beyond, x % 2), num_classes=2)
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2))
    with pytest.raises(ConfigurationError, match="does not fit the test data: it failed with: index out of range"):
        Simulation(to.Experiment(data, model, rounds=20))


class Squeezed(nn.Linear):
    def forward(self, input):
        return super().forward(input).squeeze()


def test_outputs_of_one_example_keep_their_dimension():
    """With 16 and then one example in a pass, squeeze() gives a number where a vector is needed."""
    x = torch.randn(34, 3, generator=torch.Generator().manual_seed(0))
    data = to.data.from_arrays(x, x[:, 0], client_ids=torch.arange(34) // 17).split(test_fraction=0.0)
    run = to.Experiment(data, Squeezed(3, 1), to.fedavg(to.Sgd(steps=None, epochs=1)), loss=nn.MSELoss(), rounds=2)
    with pytest.raises(
        ConfigurationError, match=r"and \(\) for one, needed \(1,\): squeeze\(\) .* write squeeze\(-1\)"
    ):
        Simulation(run)


class Several(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        outputs = self.linear(x)
        return outputs, outputs.sum()


@pytest.mark.parametrize("algorithm", [to.fedavg(), to.ditto(cohort_size=2)])
def test_models_of_several_outputs_run_to_the_end(algorithm):
    """Their loss is recorded; predictions, which nobody can read from them, are not."""

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs[0], targets, reduction="none")

    data = replace(DATA, test=None, client_test=DATA.train)
    result = to.Experiment(data, Several(16, 4), algorithm, loss=loss, rounds=2).run()
    assert np.isfinite(result.summary()["test_loss"])
    assert "test_accuracy" not in result.summary()
    with pytest.raises(ConfigurationError, match="predictions"):
        result.confusion()
