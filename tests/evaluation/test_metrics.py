"""Metrics equal those of scikit-learn, and are available to sweeps, stopping and tables."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as theirs

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.evaluation import metrics
from turnout.evaluation.metrics import METRICS, named
from turnout.record.schema import less_is_better
from turnout.results.formats import markdown
from turnout.results.records import RunRecord
from turnout.results.table import comparison
from turnout.simulation.simulation import Simulation


def examples(num_classes: int, n: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits with ties, and labels that do not have the last class but one."""
    draw = np.random.default_rng(num_classes)
    labels = draw.integers(0, num_classes, n)
    if num_classes > 2:
        labels[labels == num_classes - 2] = 0
    return torch.from_numpy(draw.normal(size=(n, num_classes)).round(1)), torch.from_numpy(labels)


@pytest.mark.parametrize("num_classes", [2, 3, 6])
def test_metrics_equal_scikit_learn(num_classes: int) -> None:
    outputs, targets = examples(num_classes)
    labels, guessed, shares = targets.numpy(), outputs.argmax(dim=1).numpy(), outputs.softmax(dim=1).numpy()
    present = np.unique(labels)
    if num_classes == 2:
        area = theirs.roc_auc_score(labels, (outputs[:, 1] - outputs[:, 0]).numpy())
    else:
        area = np.mean([theirs.roc_auc_score(labels == k, shares[:, k]) for k in present])
    assert metrics.auc(outputs, targets) == pytest.approx(area, abs=1e-12)
    assert metrics.f1(outputs, targets) == pytest.approx(theirs.f1_score(labels, guessed, average="macro"), abs=1e-12)
    recall: Any = theirs.recall_score(labels, guessed, average=None, labels=present)  # pyright: ignore[reportArgumentType]
    assert metrics.balanced_accuracy(outputs, targets) == pytest.approx(recall.mean(), abs=1e-12)
    assert metrics.worst_class_accuracy(outputs, targets) == pytest.approx(recall.min(), abs=1e-12)
    assert metrics.perplexity(outputs, targets) == pytest.approx(
        math.exp(theirs.log_loss(labels, shares, labels=range(num_classes)))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_classes", [2, 4])
def test_area_of_confident_outputs_of_few_bits_equals_that_of_exact_scores(
    num_classes: int, dtype: torch.dtype
) -> None:
    """Probabilities in float32 are 1 for many examples, and differences in bfloat16 have 8 bits, which would be ties."""
    outputs, targets = examples(num_classes, 500)
    outputs = (10 * outputs + 15 * torch.eye(num_classes)[targets.roll(1)]).to(dtype)
    exact, labels = outputs.double(), targets.numpy()
    scores = (exact - exact[:, :1])[:, 1:] if num_classes == 2 else exact.softmax(dim=1)
    present = [1] if num_classes == 2 else np.unique(labels)
    area = np.mean([theirs.roc_auc_score(labels == k, scores[:, 0 if num_classes == 2 else k]) for k in present])
    assert metrics.auc(outputs, targets) == pytest.approx(area, abs=1e-12)


def test_perplexity_beyond_a_number_is_infinite() -> None:
    assert metrics.perplexity(torch.tensor([[0.0, 2000.0]]), torch.tensor([0])) == math.inf


def test_regression_metrics() -> None:
    draw = np.random.default_rng(0)
    outputs, targets = torch.from_numpy(draw.normal(size=(50, 1))), torch.from_numpy(draw.normal(size=50))
    assert metrics.mae(outputs, targets) == pytest.approx(theirs.mean_absolute_error(targets, outputs[:, 0]), abs=1e-12)
    assert metrics.r2(outputs, targets) == pytest.approx(theirs.r2_score(targets, outputs[:, 0]), abs=1e-12)
    assert math.isnan(metrics.r2(outputs, torch.ones(50)))


def test_calibration_error_equals_its_definition() -> None:
    outputs, targets = examples(3)
    shares, labels = outputs.softmax(dim=1).numpy(), targets.numpy()
    sure, right = shares.max(axis=1), shares.argmax(axis=1) == labels
    edges = np.linspace(0, 1, 16)
    inside = [(sure > low) & (sure <= high) for low, high in itertools.pairwise(edges)]
    error = sum(abs(right[some].mean() - sure[some].mean()) * some.mean() for some in inside if some.any())
    assert metrics.calibration_error(outputs, targets) == pytest.approx(error, abs=1e-12)


def test_area_of_a_single_class_is_nan() -> None:
    assert math.isnan(metrics.auc(torch.zeros(3, 2), torch.ones(3, dtype=torch.long)))
    assert math.isnan(metrics.auc(torch.zeros(3, 4), torch.ones(3, dtype=torch.long)))


def positive(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """A metric of the user's own."""
    return float((outputs.argmax(dim=1) == 1).double().mean()) + 0.0 * len(targets)


def experiment(**options: object) -> to.Experiment:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(240, 3))
    y = (x[:, 0] + draw.normal(size=240) > 0).astype(np.int64)
    data = to.data.from_arrays(x, y, name="rows").split(
        to.partition.Iid(), 6, client_test_fraction=0.2, validation_fraction=0.2
    )
    settings: dict[str, object] = {"model": to.models.Logistic(), "rounds": 6, "evaluate_every": 3, **options}
    return to.Experiment(data=data, metrics=("auc", positive), **settings)  # type: ignore[arg-type]


def test_metrics_are_recorded_for_every_split_and_client() -> None:
    run = experiment()
    result = run.run()
    assert run.data.test is not None
    with torch.no_grad():
        outputs = result.model(run.data.test.x)
    row = {name: result.rounds[name][-1].as_py() for name in result.rounds.column_names}
    assert row["test_auc"] == pytest.approx(metrics.auc(outputs, run.data.test.y), abs=1e-12)
    assert row["test_positive"] == pytest.approx(positive(outputs, run.data.test.y), abs=1e-12)
    assert {"train_auc", "validation_auc", "validation_positive"} <= row.keys()
    assert run.data.client_test is not None
    for k in range(6):
        x, y = run.data.client_test.client(k)
        with torch.no_grad():
            assert result.clients["test_auc"][k].as_py() == pytest.approx(metrics.auc(result.model(x), y), abs=1e-12)
    assert result.summary()["test_auc"] == pytest.approx(row["test_auc"])


def test_metrics_use_personal_models() -> None:
    result = experiment(algorithm=to.ditto(cohort_size=3)).run()
    areas = result.clients["test_auc"].to_numpy()
    assert np.isfinite(areas).all()
    assert np.isfinite(result.rounds["test_auc"].to_numpy()[-1])


def test_metrics_work_in_stopping_sweeps_and_tables(tmp_path: Path) -> None:
    stopped = experiment(rounds=30).run(callbacks=[to.EarlyStopping(target=0.5, metric="validation_auc")])
    assert stopped.rounds.num_rows < 30

    def make(seed: int, lr: float) -> to.Experiment:
        return experiment(algorithm=to.fedavg(to.Sgd(lr=lr)), seed=seed)

    found = to.sweep(make, {"lr": [0.01, 0.5]}, 1, tmp_path, metric="validation_auc", jobs=1)
    assert found.best["lr"] in (0.01, 0.5)
    record = RunRecord("fedavg", 0, stopped.history, {"rounds": 30})
    assert "test auc" in markdown(comparison([record]))
    assert less_is_better("test_calibration_error")
    assert not less_is_better("test_auc")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("aux",), "unknown metric 'aux': did you mean 'auc'"),
        ("auc", r"metrics: got 'auc', needed a sequence of names and functions, such as \('auc', 'f1'\)"),
        ((3,), "metrics: got 3, needed a name, or a function of outputs and targets that def"),
        (("auc", "auc"), "metrics: got 'auc', needed names that no other column has"),
        (("mae",), "metrics: mae needs numeric targets, which the data do not have: remove it"),
    ],
)
def test_invalid_metric_is_refused(given: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        named(given, True, False)


def test_label_metrics_are_refused_for_numeric_targets() -> None:
    with pytest.raises(ConfigurationError, match="metrics: f1 needs class labels"):
        named(("f1",), False, True)
    assert list(named(("mae", "r2"), False, True)) == ["mae", "r2"]
    assert set(METRICS) == set(metrics.__all__)


class TwoOutputs(torch.nn.Linear):
    """A model that also returns its inputs."""

    def forward(self, input: torch.Tensor) -> Any:
        return super().forward(input), input


def first_of_two(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs[0], targets, reduction="none")


def test_metrics_of_outputs_that_are_no_tensor_are_refused() -> None:
    run = experiment(model=TwoOutputs(3, 2).double(), loss=first_of_two)
    with pytest.raises(
        ConfigurationError, match="metrics: the model returns a tuple, but metrics need one tensor: remove metrics"
    ):
        run.run()


def no_number(outputs: torch.Tensor, targets: torch.Tensor) -> object:
    """A metric that forgot to choose a class."""
    return outputs == targets[:, None]


def right(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A metric that is a number for each example."""
    return outputs.argmax(dim=1) == targets


def test_per_example_metric_is_averaged() -> None:
    outputs, targets = examples(2)
    figures = metrics.measured({"right": right}, outputs, targets)
    assert figures == {"right": float((outputs.argmax(dim=1) == targets).double().mean())}


@pytest.mark.parametrize("changes", ["outputs", "targets"])
def test_metric_that_changes_what_it_receives_is_refused(changes: str) -> None:
    def negative(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        {"outputs": outputs, "targets": targets}[changes].neg_()
        return 0.0

    with pytest.raises(
        ConfigurationError, match="metric negative changes its outputs or targets in place, of which other"
    ):
        metrics.measured({"negative": negative, "f1": metrics.f1}, *examples(2))


def test_metric_without_a_number_is_named() -> None:
    with pytest.raises(
        ConfigurationError, match=r"(?s)metric no_number: got .* needed a number for all examples together"
    ):
        metrics.measured({"no_number": no_number}, *examples(2))  # type: ignore[dict-item]


@pytest.mark.parametrize("algorithm", [to.fedavg(), to.ditto(cohort_size=5)], ids=["shared", "personal"])
def test_evaluation_runs_the_model_once(algorithm: to.Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with metrics, in evaluations and for the table of clients."""
    data = to.data.digits().split(to.partition.Iid(), 5, client_test_fraction=0.2, test_fraction=0.0)
    run = to.Experiment(data=data, model=to.models.Logistic(), algorithm=algorithm, metrics=("auc", "f1"))
    simulation, seen = Simulation(run), []
    outputs = simulation.objective.network.outputs

    def counted(params: torch.Tensor, x: torch.Tensor, *more: Any) -> Any:
        seen.append(len(x))
        return outputs(params, x, *more)

    monkeypatch.setattr(simulation.objective.network, "outputs", counted)
    plain = Simulation(replace(run, metrics=()))
    row = simulation.evaluate()
    assert sum(seen) == 1797
    assert {name: row[name] for name in plain.evaluate()} == pytest.approx(plain.evaluate(), abs=1e-12)
    seen.clear()
    simulation.judge.by_client()
    assert sum(seen) == 1797


def test_metrics_of_outputs_with_nan() -> None:
    """Such examples are in no predicted class, and no order of them is known."""
    outputs, targets = torch.eye(3)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])
    outputs[0, 1] = math.nan
    assert metrics.balanced_accuracy(outputs, targets) == 0.75
    assert metrics.worst_class_accuracy(outputs, targets) == 0.5
    assert metrics.f1(outputs, targets) == pytest.approx((2 / 3 + 1) / 2)
    assert math.isnan(metrics.auc(outputs, targets))
    assert math.isnan(metrics.auc(outputs[:, :2], targets))
