"""Accuracies by groups of labels in comparisons and reports."""

import pytest

from turnout.record.query import History
from turnout.reporting.report import write_report
from turnout.results.column import column_of
from turnout.results.formats import csv, markdown
from turnout.results.names import label, scale_of
from turnout.results.records import RunRecord
from turnout.results.table import by_labels, comparison, rich_tables


def record(algorithm, of_few, of_many):
    history = History()
    history.record(round=1, test_accuracy=0.5, test_accuracy_of_0_1=of_few, test_accuracy_of_2=of_many)
    history.set_clients(test_accuracy=[0.5])
    return RunRecord(algorithm, 0, history)


RECORDS = [record("fedbuff", 0.25, 0.75), record("fedstaleweight", 0.5, 0.625)]


def test_each_group_has_a_column():
    rows = comparison(RECORDS)
    keys = by_labels(rows)
    assert keys == ["test_accuracy_of_0_1", "test_accuracy_of_2"]
    shown = markdown(rows, keys)
    assert "| algorithm | test accuracy of labels 0, 1 (%) | test accuracy of label 2 (%) |" in shown
    assert "| fedbuff | 25.0 | 75.0 |" in shown
    assert len(rich_tables(rows).renderables) == 2
    assert "test_accuracy_of_0_1_mean" in csv(rows)


def test_groups_use_the_same_examples_as_other_accuracies():
    """Without client tests, clients are compared by training accuracy, and the model by its test set."""
    history = History()
    pooled = {"test_accuracy": 0.5, "test_accuracy_of_0": 0.3, "test_accuracy_of_1": 0.7}
    history.record(round=1, train_accuracy=0.9, train_accuracy_of_0=0.9, train_accuracy_of_1=0.9, **pooled)
    history.set_clients(train_accuracy=[0.9])
    rows = comparison([RunRecord("fedbuff", 0, history)])
    assert by_labels(rows) == ["test_accuracy_of_0", "test_accuracy_of_1"]
    assert column_of("test_accuracy_of_0").short == "test 0 %"
    history = History()
    history.record(round=1, train_accuracy=0.9, train_accuracy_of_0=0.9)
    history.set_clients(train_accuracy=[0.9])
    assert by_labels(comparison([RunRecord("fedbuff", 0, history)])) == ["train_accuracy_of_0"]


def test_groups_are_named_and_shown_in_percent():
    assert scale_of("train_accuracy_of_3_4") == 100
    assert scale_of("weight_of_3") == 1
    assert label("train_accuracy_of_3_4") == "training accuracy of labels 3, 4 (%)"


def test_report_has_a_section_for_label_groups(tmp_path):
    page = write_report(RECORDS, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Accuracy by labels" in page
    assert "Test accuracy of labels 0, 1</h3>" in page


@pytest.mark.usefixtures("undrawn")
def test_report_without_label_groups_omits_the_section(tmp_path, make_run):
    assert "by labels" not in write_report([make_run("fedau", 0)], tmp_path / "other.html").read_text(encoding="utf-8")
