"""Numeric targets, from data to tables."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import turnout as to
from turnout.cli.run import final
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.engine.loss import cross_entropy
from turnout.reporting.progress import Notes
from turnout.reporting.report import write_report
from turnout.results.formats import markdown
from turnout.results.records import RunRecord
from turnout.results.table import comparison

from .tiny import recipe

rng = np.random.default_rng(0)
X, TRUTH = rng.normal(size=(240, 5)), rng.normal(size=(5, 2))
Y = X @ TRUTH[:, 0] + 0.1
LOCAL = to.Sgd(lr=0.05, steps=5)


def numbers(x: Any = X, y: Any = Y, **options: Any):
    return to.data.from_arrays(x, y).split(to.partition.Iid(), num_clients=6, **options)


def experiment(data, **options):
    given = {
        "algorithm": to.fedavg(local=LOCAL),
        "model": to.models.Logistic(),
        "loss": to.loss.squared_error,
        "rounds": 20,
    }
    return to.Experiment(data=data, **(given | options))


@pytest.mark.parametrize(
    ("kind", "error", "engine"),
    [
        (torch.float16, 0.05, "vectorized"),
        (torch.float16, 0.05, "one_by_one"),
        (torch.bfloat16, 0.2, "vectorized"),
        (torch.float32, 1e-3, "vectorized"),
        (torch.float64, 1e-3, "vectorized"),
        (torch.float64, 1e-3, "one_by_one"),
    ],
)
def test_linear_regression_learns_in_the_dtype_of_the_data(kind, error, engine):
    data = numbers(torch.tensor(X).to(kind), torch.tensor(Y).to(kind))
    run = experiment(data, engine=engine)
    assert next(run.build_model().parameters()).dtype == kind
    assert run.run().summary()["test_rmse"] < error


@pytest.mark.parametrize("name", ["scaffold", "mifa", "fedvarp"])
def test_user_model_trains_in_float64(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    data = numbers(y=X @ TRUTH)
    history = experiment(data, model=model, algorithm=recipe(name, LOCAL), loss=nn.MSELoss(), rounds=30).run().history
    losses = history.column("train_loss")[1]
    assert losses[-1] < 0.7 * losses[0]
    assert history.column("train_rmse")[1] ** 2 == pytest.approx(losses)


def test_personal_models_and_unseen_clients_have_errors():
    data = numbers(client_test_fraction=0.2, unseen_clients=2, test_fraction=0)
    history = experiment(data, model=to.models.Mlp((4,)), algorithm=recipe("fedavg_p", LOCAL), rounds=3).run().history
    rmse, loss = (history.column(f"unseen_test_{name}")[1] for name in ("rmse", "loss"))
    assert rmse**2 == pytest.approx(loss)
    of_clients, sizes = history.client_column("train_rmse") ** 2, history.client_column("num_examples")
    assert history.column("train_rmse")[1][-1] ** 2 == pytest.approx(of_clients @ sizes / sizes.sum())


@pytest.mark.usefixtures("undrawn")
def test_accuracy_is_not_shown(tmp_path):
    history = experiment(numbers(client_test_fraction=0.2), rounds=10).run().history
    assert not [name for name in history.summary() if "accuracy" in name or name == "fairness"]
    record = RunRecord("fedavg", 0, history)
    table = markdown(comparison([record]))
    assert "test RMSE" in table
    assert "0.000 " not in table  # a small error is no zero
    written = write_report([record], tmp_path / "report.html", numbers(), "Numbers").read_text(encoding="utf-8")
    page = re.sub(r"<(svg|style).*?</\1>", "", written, flags=re.DOTALL)
    assert not re.search(r"(?<!s and losses are)accuracy(?! of)", page.replace("Accuracies", ""))
    assert final(history).startswith("test RMSE 0.")
    assert Notes()({"test_rmse": 0.02125}) == "test RMSE 0.0213"
    assert Notes()({"train_loss": 0.5}) == "training loss 0.5"
    assert Notes()({"test_rmse": 0.5, "validation_rmse": 0.25}) == "validation RMSE 0.25"


def test_outputs_of_another_shape_have_only_a_loss():
    def gaussian(outputs, targets):
        return (outputs[:, 0] - targets) ** 2 * (-outputs[:, 1]).exp() + outputs[:, 1]

    history = experiment(numbers(), model=nn.Linear(5, 2).double(), loss=gaussian, rounds=2).run().history
    assert {name for name in history.summary() if name.startswith(("test", "train"))} == {"test_loss", "train_loss"}


def test_given_splits_need_no_num_classes():
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y, dtype=torch.float32)
    data = FederatedData("mine", Shards(x, y, np.array([0, 100, 240])))
    assert experiment(data).run().summary()["train_rmse"] < 0.1
    labels = FederatedData("mine", Shards(x, (y > 0).long() * 2, np.array([0, 100, 240])))
    assert labels.num_classes == labels.num_outputs == 3


def test_partitions_by_class_are_refused():
    source = to.data.from_arrays(X, Y)
    with pytest.raises(
        to.DataError, match=r"Dirichlet goes by class labels.* write Iid\(\), or ById\(\) with client ids"
    ):
        source.split(to.partition.Dirichlet(alpha=0.1), num_clients=3)
    with pytest.raises(
        to.ConfigurationError, match=r"flip_labels: got 0\.5, needed 0, because the targets of arrays are no"
    ):
        source.split(to.partition.Iid(), num_clients=3, flip_labels=0.5)
    natural = to.data.from_arrays(X, Y, client_ids=np.arange(240) % 4).split()
    assert natural.num_clients == 4
    with pytest.raises(to.DataError, match="are no class labels, so there are no classes to count"):
        natural.label_counts()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": cross_entropy}, r"cross-entropy is about class labels: write loss=to.loss.squared_error"),
        ({"label_groups": ((0, 1),)}, "label_groups: .* which are no class labels: leave it out"),
        (
            {"population": to.Population(requirement=to.requirement.WarmUp(measure="accuracy"))},
            "requirement: .* which have no accuracy: write measure='loss'",
        ),
    ],
)
def test_options_about_labels_are_refused(options, message):
    with pytest.raises(to.ConfigurationError, match=message):
        experiment(numbers(), **options)


def test_mismatched_dtypes_are_refused_with_a_correction():
    with pytest.raises(
        to.ConfigurationError, match=r"are float32 and the inputs float64: write model.to\(torch.float64"
    ):
        experiment(numbers(), model=nn.Linear(5, 1)).run()
    model = nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))
    with pytest.raises(
        to.ConfigurationError, match=r"are float32 and the targets float64: .* give the targets as float32"
    ):
        experiment(numbers(X.astype(np.float32)), model=model, loss=nn.HuberLoss()).run()


def test_broadcasting_loss_is_refused():
    def broadcast(outputs, targets):  # [b, 1] - [b] is [b, b]
        return ((outputs - targets) ** 2).mean(dim=1)

    with pytest.raises(to.ConfigurationError, match=r"on the other examples .* e.g. outputs.reshape\(targets.shape\)"):
        experiment(numbers(), loss=broadcast).run()


def test_negative_labels_in_given_splits_are_refused():
    shards = Shards(torch.zeros(2, 1), torch.tensor([-1, 1]), np.array([0, 2]))
    with pytest.raises(to.DataError, match="train labels run from -1 to 1, but classes are numbered from 0"):
        FederatedData("mine", shards)
    targets = Shards(torch.zeros(2, 1), torch.tensor([0.5, torch.inf]), np.array([0, 2]))
    with pytest.raises(to.DataError, match="train targets hold NaN or infinity, first in example 1"):
        FederatedData("mine", targets)
