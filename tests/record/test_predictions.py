"""Counted predictions: confusion, precision and recall by class, calibration."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.engine.reading import score
from turnout.evaluation.metrics import balanced_accuracy, calibration_error, f1
from turnout.pieces.aggregation import PrivateSum
from turnout.record.predictions import PREDICTION_COLUMNS, by_class, calibration, confusion, count_predictions
from turnout.record.query import History
from turnout.record.tables import read, write
from turnout.reporting.class_figures import calibration_figure, confusion_figure
from turnout.reporting.report import write_report
from turnout.results.records import RunRecord

RNG = torch.Generator().manual_seed(0)
LOGITS = torch.randn(500, 4, generator=RNG) * 2
LABELS = torch.randint(0, 3, (500,), generator=RNG)  # the last class has no examples
COUNTED = count_predictions(LOGITS, LABELS)


def federation(**options: Any) -> to.data.FederatedData:
    return to.data.digits().split(to.partition.Dirichlet(0.5), num_clients=8, **options)


def run(data: to.data.FederatedData, algorithm: to.Algorithm | None = None, folder: Path | None = None) -> to.Result:
    algorithm = algorithm or to.fedavg()
    return to.Experiment(data=data, model=to.models.Logistic(), algorithm=algorithm, rounds=4).run(folder)


def test_confusion_precision_and_recall_equal_those_of_scikit_learn() -> None:
    predicted = LOGITS.argmax(1)
    matrix = confusion([COUNTED])
    np.testing.assert_array_equal(matrix, confusion_matrix(LABELS, predicted, labels=range(4)))
    table = by_class(matrix)
    expected: Any = precision_recall_fscore_support(LABELS, predicted, labels=range(4), zero_division=np.nan)  # type: ignore[arg-type]
    precision, recall, f1, examples = expected
    np.testing.assert_allclose(table["precision"].to_numpy(), precision)
    np.testing.assert_allclose(np.array(table["recall"].to_pylist(), dtype=float), recall)
    np.testing.assert_allclose(table["f1"].to_numpy(), f1)
    assert table["examples"].to_pylist() == examples.tolist()
    assert table["recall"].to_pylist()[3] is None


def test_counts_of_several_tables_add_up() -> None:
    halves = [count_predictions(LOGITS[:200], LABELS[:200]), count_predictions(LOGITS[200:], LABELS[200:])]
    np.testing.assert_array_equal(confusion(halves), confusion([COUNTED]))
    whole, parts = calibration([COUNTED]), calibration(halves)
    assert parts["examples"].equals(whole["examples"])
    np.testing.assert_allclose(parts["confidence"].to_numpy(), whole["confidence"].to_numpy())


def test_outputs_with_nan_predict_no_class(tmp_path: Path) -> None:
    """Accuracy, F1 and recall count them as wrong, and a calibration has no confidence of theirs."""
    logits = torch.where(torch.arange(500)[:, None] % 7 == 0, torch.nan, LOGITS)
    table = count_predictions(logits, LABELS)
    missing = table.filter(table["predicted"].is_null())
    assert sum(missing["count"].to_pylist()) == 72
    assert missing["bin"].null_count == missing["confidence"].null_count == len(missing) > 0
    matrix, predicted = confusion([table]), torch.where(logits.isnan().any(1), 4, logits.argmax(1))
    np.testing.assert_array_equal(matrix, confusion_matrix(LABELS, predicted, labels=range(5))[:4])
    assert np.trace(matrix) / matrix.sum() == score(logits, LABELS).mean()
    classes = by_class(matrix)
    assert classes["examples"].to_pylist() == torch.bincount(LABELS, minlength=4).tolist()
    assert classes["predicted"].to_pylist() == torch.bincount(predicted, minlength=5)[:4].tolist()
    known = [value for value in classes["f1"].to_pylist() if value is not None]
    assert np.mean(known) == pytest.approx(f1(logits, LABELS))
    recalls = [value for value in classes["recall"].to_pylist() if value is not None]
    assert np.mean(recalls) == pytest.approx(balanced_accuracy(logits, LABELS))
    rest = count_predictions(*(values[~logits.isnan().any(1)] for values in (logits, LABELS)))
    assert calibration([table]).equals(calibration([rest]))
    np.testing.assert_array_equal(confusion([rest, table])[:, :4], confusion([rest]) + matrix[:, :4])
    write(tmp_path / "predictions.parquet", [table], table.schema)
    assert read(tmp_path / "predictions.parquet", PREDICTION_COLUMNS).equals(table)


def test_infinite_outputs_are_sure_predictions() -> None:
    logits = torch.tensor(
        [[math.inf, 0.0], [0.0, math.inf], [-math.inf, 3.0], [-math.inf, -math.inf], [math.inf, math.inf]]
    )
    labels = torch.tensor([0, 0, 1, 0, 1])
    table = count_predictions(logits, labels)
    assert confusion([table]).tolist() == [[2, 1], [1, 1]]
    assert score(logits, labels).tolist() == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert calibration([table]).to_pydict()["confidence"] == [0.5, 1.0]
    assert calibration_error(logits, labels) == pytest.approx((abs(1 - 1.0) + abs(2 - 3.0)) / 5)


def test_figure_shows_outputs_with_nan_beside_the_classes() -> None:
    history = History()
    history.predictions = count_predictions(torch.tensor([[1.0, 0.0], [torch.nan, 0.0]]), torch.tensor([0, 1]))
    axes = confusion_figure([RunRecord("fedavg", 0, history)]).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1", "NaN"]
    np.testing.assert_array_equal(np.asarray(axes.images[0].get_array()), [[1, 0, 0], [0, 0, 1]])


def test_gaps_of_the_bins_add_up_to_the_calibration_error() -> None:
    table = calibration([COUNTED])
    share = table["examples"].to_numpy() / len(LABELS)
    gaps = np.abs(table["accuracy"].to_numpy() - table["confidence"].to_numpy())
    assert share @ gaps == pytest.approx(calibration_error(LOGITS, LABELS))
    inside = (table["low"].to_numpy() < table["confidence"].to_numpy()) & (
        table["confidence"].to_numpy() <= table["high"].to_numpy()
    )
    assert inside.all()


@pytest.mark.parametrize(
    "algorithm", [to.fedavg(), to.algorithms.local(), to.ditto()], ids=["shared", "local", "ditto"]
)
def test_share_of_right_predictions_is_the_test_accuracy(algorithm: to.Algorithm, tmp_path: Path) -> None:
    result = run(federation(test_fraction=0.0, client_test_fraction=0.3), algorithm, tmp_path / "run")
    matrix = result.confusion()
    assert matrix.shape == (10, 10)
    assert np.trace(matrix) / matrix.sum() == pytest.approx(result.rounds["test_accuracy"][-1].as_py())
    loaded = to.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.confusion(), matrix)
    assert loaded.calibration().equals(result.calibration())


def test_a_single_logit_is_read_as_two_classes() -> None:
    rows = {"x": np.linspace(-1, 1, 60).tolist(), "y": [0.0] * 30 + [1.0] * 30, "at": [i % 3 for i in range(60)]}
    data = to.data.from_table(rows, label="y", client="at", task="classification").split(test_fraction=0.5)
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    loss = torch.nn.BCEWithLogitsLoss()
    result = to.Experiment(data=data, model=model, algorithm=to.fedavg(to.Sgd(lr=1.0)), rounds=30, loss=loss).run()
    assert result.confusion().sum() == 30
    assert np.trace(result.confusion()) / 30 == pytest.approx(result.rounds["test_accuracy"][-1].as_py())


def test_classes_of_a_table_have_their_names() -> None:
    rows = {"x": np.linspace(-1, 1, 60).tolist(), "y": ["ill"] * 30 + ["well"] * 30, "at": [i % 3 for i in range(60)]}
    result = run(to.data.from_table(rows, label="y", client="at").split(test_fraction=0.5))
    assert result.by_class()["class"].to_pylist() == ["ill", "well"]


def test_runs_without_predictions_say_what_is_needed() -> None:
    without_tests = run(federation(test_fraction=0.0))
    of_numbers = to.Experiment(
        data=to.data.from_arrays(torch.rand(40, 2), torch.rand(40)).split(to.partition.Iid(), num_clients=4),
        model=to.models.Logistic(), loss=to.loss.squared_error, rounds=1,
    ).run()  # fmt: skip
    noisy = to.compose(to.Sgd(), PrivateSum(norm=1.0, noise_multiplier=1.0, cohort=8))
    private = run(federation(test_fraction=0.2), noisy)
    for result in (without_tests, of_numbers, private):
        with pytest.raises(ConfigurationError, match=r"no predictions were counted: .*write test_fraction=0\.2"):
            result.confusion()


def test_predictions_of_an_earlier_end_are_gone_when_a_run_goes_on(tmp_path: Path) -> None:
    experiment = to.Experiment(data=federation(test_fraction=0.2), model=to.models.Logistic(), rounds=3)
    experiment.run(tmp_path / "run")
    longer = replace(experiment, rounds=6)
    resumed = longer.run(tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.confusion(), longer.run().confusion())
    history = to.load(tmp_path / "run").history
    history.rewind(2)
    assert not len(history.predictions)


def test_report_and_figures_show_every_algorithm(tmp_path: Path) -> None:
    data = federation(test_fraction=0.2)
    results = {"fedavg": run(data), "fedau": run(data, to.fedau())}
    records = [RunRecord(name, 0, result.history) for name, result in results.items()]
    page = write_report(records, tmp_path / "report.html").read_text("utf-8")
    recall = results["fedavg"].by_class()["recall"].to_pylist()[0]
    assert "fedavg, recall (%)" in page
    assert f"<td>{100 * recall:.1f}</td>" in page
    assert [axes.get_title() for axes in confusion_figure(records).axes] == ["fedavg", "fedau"]
    image = np.asarray(confusion_figure(records).axes[0].images[0].get_array())
    np.testing.assert_allclose(np.diag(image), recall_of(results["fedavg"]))
    lines = calibration_figure(records).axes[0].lines
    np.testing.assert_allclose(
        np.asarray(lines[1].get_ydata(), dtype=np.float64), 100 * results["fedavg"].calibration()["accuracy"].to_numpy()
    )
    assert to.plot(results, "calibration").axes


def recall_of(result: to.Result) -> list[float]:
    return result.by_class()["recall"].to_pylist()
