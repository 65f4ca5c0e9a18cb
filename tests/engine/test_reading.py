"""Figures follow the loss: where its classes are, what one output for two classes means, and what it averages over."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs
from torch import nn
from torch.nn import functional as F

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.engine.loss import OfExamples, cross_entropy, squared_error
from turnout.engine.reading import as_logits, metric_of, score
from turnout.simulation import Simulation

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(600, 5)).astype(np.float32)
Y = (X[:, 0] + 0.3 * DRAW.normal(size=600) > 0.8).astype(np.int64)
METRICS = ("auc", "f1", "balanced_accuracy", "worst_class_accuracy", "perplexity", "calibration_error")


def labeled(y: Any = Y, **options) -> Any:
    return to.data.from_arrays(X, y).split(to.partition.Iid(), num_clients=4, **options)


def bce(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs[:, 0], targets.float(), reduction="none")


def weighted_bce(outputs, targets):
    weight = torch.tensor(3.0)
    return F.binary_cross_entropy_with_logits(outputs[:, 0], targets.float(), reduction="none", pos_weight=weight)


def probability(outputs, targets):
    return F.binary_cross_entropy(outputs[:, 0], targets.float(), reduction="none")


def hinge(outputs, targets):
    return (1 - outputs[:, 0] * (2.0 * targets - 1)).clamp(min=0)


def one(*layers):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 1), *layers)


LOSSES = {
    "module": (nn.BCEWithLogitsLoss(), one()),
    "module of a vector": (nn.BCEWithLogitsLoss(), one(nn.Flatten(0))),
    "weighted module": (nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0)), one()),
    "probability module": (nn.BCELoss(), one(nn.Sigmoid())),
    "function": (bce, one()),
    "weighted function": (weighted_bce, one()),
    "function of a probability": (probability, one(nn.Sigmoid())),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("engine", ["vectorized", "one_by_one"])
def test_one_output_for_two_classes_equals_scikit_learn(name, engine):
    loss, module = LOSSES[name]
    data = labeled()
    algorithm = to.fedavg(to.Sgd(lr=0.5, steps=10))
    run = to.Experiment(data, module, algorithm, loss=loss, metrics=METRICS, rounds=20, engine=engine)
    result = run.run()
    outputs, labels = result.model(data.test.x).detach().reshape(-1).double(), data.test.y.numpy()
    shares = (outputs if "probability" in name else outputs.sigmoid()).numpy()
    guessed = (shares > 0.5).astype(int)
    row = {key: result.history.rounds[f"test_{key}"].to_pylist()[-1] for key in ("accuracy", *METRICS)}
    assert row["accuracy"] == pytest.approx(theirs.accuracy_score(labels, guessed), abs=1e-12)
    assert row["accuracy"] > 0.85
    assert row["auc"] == pytest.approx(theirs.roc_auc_score(labels, shares), abs=1e-12)
    assert row["f1"] == pytest.approx(theirs.f1_score(labels, guessed, average="macro"), abs=1e-12)
    assert row["balanced_accuracy"] == pytest.approx(theirs.balanced_accuracy_score(labels, guessed), abs=1e-12)
    assert row["perplexity"] == pytest.approx(math.exp(theirs.log_loss(labels, shares)), rel=1e-6)
    of_clients = result.clients["train_accuracy"].to_pylist()
    for k in range(4):
        x, y = data.train.client(k)
        right = (result.model(x).reshape(-1) > (0.5 if "probability" in name else 0.0)) == (y == 1)
        assert of_clients[k] == pytest.approx(float(right.double().mean()))


def test_margins_have_their_sign_and_squared_errors_approach_0_and_1():
    outputs, labels = torch.tensor([[-2.0], [0.3], [0.7]]), torch.tensor([0, 1, 1])
    assert score(outputs, labels, hinge).tolist() == [1.0, 1.0, 1.0]
    assert score(outputs, labels, squared_error).tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "algorithm", [to.ditto(cohort_size=2), to.fedper(cohort_size=2), to.apfl(cohort_size=2), to.fedala(cohort_size=2)]
)
def test_personal_models_with_one_output(algorithm):
    module = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1))
    data = labeled(client_test_fraction=0.3, test_fraction=0.0)
    for metrics in ((), ("auc",)):
        run = to.Experiment(data, module, algorithm, loss=nn.BCEWithLogitsLoss(), metrics=metrics, rounds=3)
        result = run.run()
        for k in range(4):
            x, y = data.client_test.client(k)
            outputs = result.personal_model(k)(x)[:, 0]
            assert result.clients["test_accuracy"].to_pylist()[k] == pytest.approx(
                float(((outputs > 0) == (y == 1)).double().mean())
            )
            if metrics:
                area = theirs.roc_auc_score(y.numpy(), outputs.detach().numpy())
                assert result.clients["test_auc"].to_pylist()[k] == pytest.approx(area, abs=1e-12)


@pytest.mark.parametrize(
    ("module", "loss", "y", "message"),
    [
        (
            nn.Linear(5, 1),
            cross_entropy,
            Y,
            "one output for 2 classes .* 2 outputs, or one output with loss=torch.nn.BCE",
        ),
        (nn.Linear(5, 1), nn.CrossEntropyLoss(), Y, "one output for 2 classes"),
        (
            nn.Linear(5, 2),
            nn.CrossEntropyLoss(),
            Y + np.arange(600) % 2,
            "2 outputs for 3 classes .* last layer with 3",
        ),
        (nn.Linear(5, 2), nn.MultiMarginLoss(), Y + np.arange(600) % 2, "2 outputs for 3 classes"),
        (nn.Linear(5, 1), nn.BCEWithLogitsLoss(), Y + np.arange(600) % 2, "one output for 3 classes"),
        (nn.Linear(5, 1), bce, Y + np.arange(600) % 2, "one output for 3 classes"),
        (
            nn.Linear(5, 2),
            nn.BCEWithLogitsLoss(),
            Y,
            "BCEWithLogitsLoss needs one output for each label, got outputs .*, 2",
        ),
    ],
)
def test_models_with_too_few_outputs_are_refused_before_training(module, loss, y, message):
    with pytest.raises(ConfigurationError, match=message):
        Simulation(to.Experiment(labeled(y), module, loss=loss, rounds=1))


def test_classes_without_examples_need_an_output():
    data = to.data.from_arrays(X, Y, num_classes=5).split(to.partition.Iid(), num_clients=4)
    with pytest.raises(ConfigurationError, match="2 outputs for 5 classes"):
        Simulation(to.Experiment(data, nn.Linear(5, 2), rounds=1))


def test_numbers_0_and_1_are_labels_of_a_binary_loss():
    """Labels of floating point, as binary losses of torch take them; with several labels, the mean over these."""
    for y, width in ((Y.astype(np.float32), 1), (np.stack([Y, 1 - Y, Y], axis=1).astype(np.float32), 3)):
        data = labeled(y)
        for rule in (to.fedavg(), to.ditto(cohort_size=2)):
            run = to.Experiment(data, nn.Linear(5, width), rule, loss=nn.BCEWithLogitsLoss(), rounds=1)
            result = run.run()
            assert "test_rmse" not in result.rounds.column_names
            if rule.personal is None:
                right = (result.model(data.test.x).reshape(data.test.y.shape) > 0) == (data.test.y > 0.5)
                expected = float(right.double().mean())
                assert result.rounds["test_accuracy"].to_pylist()[-1] == pytest.approx(expected)
    with pytest.raises(ConfigurationError, match=r"auc needs class labels, .* give labels as whole numbers"):
        to.Experiment(labeled(Y.astype(np.float32)), nn.Linear(5, 1), loss=nn.MSELoss(), metrics=("auc",))


class Tokens(nn.Module):
    """Logits with classes on axis 1, ``[b, C, T]``, as losses of torch take them."""

    def __init__(self, vocabulary):
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(6, vocabulary)

    def forward(self, x):
        return self.table(x).transpose(1, 2)


def torch_style(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none").mean(dim=1)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), torch_style, nn.CrossEntropyLoss(ignore_index=1)])
@pytest.mark.parametrize("vocabulary", [6, 4, 9])
def test_classes_on_axis_1(loss, vocabulary):
    """Also where there are as many classes as places, so that shapes do not tell the axes apart."""
    x = torch.randint(0, 6, (60, 6), generator=torch.Generator().manual_seed(0))
    y = (x + 1) % min(6, vocabulary)
    data = to.data.from_arrays(x, y, num_classes=vocabulary).split(to.partition.Iid(), num_clients=3)
    run = to.Experiment(
        data, Tokens(vocabulary), to.fedavg(to.Sgd(lr=1.0)), loss=loss, metrics=("perplexity",), rounds=5
    )
    result = run.run()
    assert data.test is not None
    outputs, labels = result.model(data.test.x).detach(), data.test.y
    counts = labels != (1 if isinstance(loss, nn.Module) and loss.ignore_index == 1 else -100)
    right = ((outputs.argmax(dim=1) == labels) & counts).double().sum(dim=1) / counts.sum(dim=1)
    row = {name: values[-1] for name, values in result.rounds.to_pydict().items()}
    assert row["test_accuracy"] == pytest.approx(float(right.mean()))
    flat = outputs.movedim(1, -1)[counts].double(), labels[counts]
    assert row["test_perplexity"] == pytest.approx(float(F.cross_entropy(*flat).exp()), rel=1e-6)
    losses = F.cross_entropy(outputs, labels, reduction="none")
    assert row["test_loss"] == pytest.approx(float(((losses * counts).sum(dim=1) / counts.sum(dim=1)).mean()), rel=1e-5)


def test_ignored_labels_do_not_count_in_a_mean():
    outputs, labels = torch.randn(1, 4, 3), torch.tensor([[1, -100, 2]])
    expected = nn.CrossEntropyLoss()(outputs, labels)
    torch.testing.assert_close(OfExamples(nn.CrossEntropyLoss())(outputs, labels)[0], expected)


@pytest.mark.parametrize(
    ("loss", "has_error"),
    [
        (nn.PoissonNLLLoss(), False),
        (nn.PoissonNLLLoss(log_input=False), True),
        (lambda outputs, targets: (outputs[:, 0] - targets.log()).square(), False),
        (lambda outputs, targets: F.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none"), False),
        (lambda outputs, targets: (outputs[:, 0] - targets).abs(), True),
        (squared_error, True),
        (nn.HingeEmbeddingLoss(), False),
        (nn.HuberLoss(), True),
        (
            lambda outputs, targets: torch.maximum(0.9 * (targets - outputs[:, 0]), 0.1 * (outputs[:, 0] - targets)),
            True,
        ),
        (lambda outputs, targets: outputs[:, 0] + targets * (-outputs[:, 0]).exp(), False),
    ],
)
def test_outputs_that_are_not_the_predicted_numbers_have_no_error(loss, has_error):
    outputs, y = torch.tensor([0.1, 0.5]), torch.tensor([0.2, 0.7])
    is_module = isinstance(loss, nn.Module)
    values = score(outputs, y, OfExamples(loss)) if is_module else score(outputs[:, None], y, loss)
    assert bool(values.isfinite().all()) == has_error


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4)])
def test_probabilities_of_classes_are_read_as_their_most_probable_class(shape):
    torch.manual_seed(0)
    outputs, targets = torch.randn(shape), torch.randn(shape).softmax(dim=1)
    loss, labels = OfExamples(nn.CrossEntropyLoss()), targets.argmax(dim=1)
    right = (outputs.argmax(dim=1) == labels).double()
    assert metric_of(targets, loss) == "accuracy"
    torch.testing.assert_close(score(outputs, targets, loss), right if right.dim() == 1 else right.mean(dim=1))
    logits, read = as_logits(loss, outputs, targets)
    assert torch.equal(read, labels)
    assert torch.equal(logits, outputs.movedim(1, -1))
    mean = nn.CrossEntropyLoss()(outputs, targets)
    torch.testing.assert_close(loss(outputs, targets).mean(), mean)


def test_labels_of_an_example_are_read_by_the_sign_of_their_outputs():
    torch.manual_seed(0)
    outputs, targets = torch.randn(5, 3), torch.randint(0, 2, (5, 3)).float()
    loss = OfExamples(nn.MultiLabelSoftMarginLoss())
    assert metric_of(targets, loss) == "accuracy"
    torch.testing.assert_close(score(outputs, targets, loss), ((outputs > 0) == (targets > 0)).double().mean(dim=1))


@pytest.mark.parametrize("batch_size", [1, 2, 16])
@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss()])
def test_broadcast_losses_are_refused_for_any_size_of_minibatch(loss, batch_size):
    y = (X @ np.array([1.0, -2.0, 0.5, 0.0, 0.0])).astype(np.float32)
    options: dict[str, Any] = {"loss": loss, "algorithm": to.fedavg(to.Sgd(batch_size=batch_size)), "rounds": 1}
    with pytest.raises(ConfigurationError, match="depends on the other examples of its minibatch"):
        to.Experiment(labeled(y), nn.Linear(5, 1), **options).run()
    to.Experiment(labeled(y[:, None]), nn.Linear(5, 1), **options).run()


@pytest.mark.parametrize("model", [nn.Linear(5, 1), nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))])
def test_broadcast_losses_are_refused_where_all_pairs_have_the_same_loss(model):
    """Outputs were compared with the targets of all examples: 0 is as far from 1 as from -1, and equal outputs agree."""
    y, vector = np.where(Y > 0, 1.0, -1.0).astype(np.float32), isinstance(model, nn.Sequential)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    fits, wrong = (y, y[:, None]) if vector else (y[:, None], y)
    with pytest.raises(ConfigurationError, match="depends on the other examples of its minibatch"):
        Simulation(to.Experiment(labeled(wrong), model, loss=nn.MSELoss(), rounds=1))
    Simulation(to.Experiment(labeled(fits), model, loss=nn.MSELoss(), rounds=1))


def test_metrics_of_numbers_are_refused_where_outputs_are_logarithms():
    """They compared logarithms of counts with counts."""
    y = np.exp(X[:, 0]).round().astype(np.float32)[:, None]
    options: dict[str, Any] = {"loss": nn.PoissonNLLLoss(), "rounds": 1}
    with pytest.raises(ConfigurationError, match="mae and r2 compare outputs with targets, and the loss takes outputs"):
        to.Experiment(labeled(y), nn.Linear(5, 1), metrics=("mae",), **options).run()

    def mae(outputs, targets):
        return float((outputs.exp() - targets).abs().mean())

    assert "test_mae" in to.Experiment(labeled(y), nn.Linear(5, 1), metrics=(mae,), **options).run().summary()
    plain = to.Experiment(labeled(y), nn.Linear(5, 1), loss=nn.HuberLoss(), metrics=("mae", "r2"), rounds=1)
    assert {"test_mae", "test_r2", "test_rmse"} <= set(plain.run().summary())


def test_squared_errors_of_classes_and_ignored_examples_are_explained():
    with pytest.raises(ConfigurationError, match=r"squared_error needs an output for each number .*\(16, 3\).*\(16,\)"):
        Simulation(to.Experiment(labeled(), nn.Linear(5, 3), loss=squared_error, rounds=1))
    with pytest.raises(ConfigurationError, match="ignores the label 1, which is that of examples of the train data"):
        to.Experiment(labeled(), nn.Linear(5, 2), loss=nn.CrossEntropyLoss(ignore_index=1))


def rounds_of(y, loss, model=None):
    """The last row, and the confusion matrix, of a run with every metric of labels."""
    x = torch.randn(120, 5, generator=torch.Generator().manual_seed(0))
    data = to.data.from_arrays(x, y, test_x=x[:40], test_y=y[:40]).split(to.partition.Iid(), num_clients=4)
    torch.manual_seed(0)
    model = model or nn.Linear(5, 1)
    metrics = ("auc", "f1", "balanced_accuracy", "worst_class_accuracy", "perplexity", "calibration_error")
    algorithm = to.fedavg(to.Sgd(lr=0.5, steps=2))
    result = to.Experiment(data, model, algorithm, loss=loss, metrics=metrics, rounds=3).run()
    row = {name: values[-1] for name, values in result.rounds.to_pydict().items() if name.startswith("test_")}
    return row, np.asarray(result.confusion()).tolist()


@pytest.mark.parametrize("shape", [(120,), (120, 1)])
def test_labels_as_numbers_have_the_metrics_of_labels(shape):
    labels = torch.randint(2, (120,), generator=torch.Generator().manual_seed(1))
    expected = rounds_of(labels, nn.BCEWithLogitsLoss())
    assert len(expected[0]) == 8
    assert rounds_of(labels.float().reshape(shape), nn.BCEWithLogitsLoss()) == expected


def test_probabilities_of_classes_have_the_metrics_of_the_most_probable_class():
    labels = torch.randint(3, (120,), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    models = [nn.Linear(5, 3)] * 2
    expected = rounds_of(labels, nn.CrossEntropyLoss(), models[0])
    assert rounds_of(F.one_hot(labels, 3).float(), nn.CrossEntropyLoss(), models[1]) == expected


def test_metrics_of_other_targets_are_refused():
    labels = torch.randint(2, (120, 3), generator=torch.Generator().manual_seed(1)).float()
    with pytest.raises(ConfigurationError, match="metrics: auc needs class labels, which the data do not have"):
        rounds_of(labels, nn.BCEWithLogitsLoss(), nn.Linear(5, 3))


@pytest.mark.parametrize(
    ("loss", "outputs", "targets"),
    [
        (cross_entropy, torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)),
        (cross_entropy, torch.zeros(4, 2, 3), torch.zeros(4, 2, dtype=torch.int64)),
        (OfExamples(nn.CrossEntropyLoss()), torch.zeros(4, 3, 2), torch.zeros(4, 2, dtype=torch.int64)),
        (OfExamples(nn.BCEWithLogitsLoss()), -torch.ones(4, 1), torch.zeros(4, dtype=torch.int64)),
        (OfExamples(nn.BCELoss()), torch.zeros(4), torch.zeros(4, dtype=torch.int64)),
        (OfExamples(nn.BCEWithLogitsLoss()), -torch.ones(4, 2), torch.zeros(4, 2)),
    ],
)
def test_outputs_with_nan_are_wrong(loss, outputs, targets):
    """NaN would count as class 0, and a diverged model could have the best accuracy of a search."""
    assert score(outputs, targets, loss).tolist() == [1.0] * 4
    outputs[1:3] = torch.nan
    assert score(outputs, targets, loss).tolist() == [1.0, 0.0, 0.0, 1.0]
