"""What clients gain in a federation: against training alone, and against all examples in one place."""

import re

import numpy as np
import pytest

import turnout as to
from turnout.core.checks import ConfigurationError, DataError
from turnout.record.query import History
from turnout.reporting.client_figures import gains_figure
from turnout.reporting.report import write_report
from turnout.results.gains import gains
from turnout.results.influence import client_table
from turnout.results.records import RunRecord

NAMES = ["Basel", "Bern", "Chur"]


def history(values, names=NAMES, sizes=(10, 20, 30), column="test_accuracy", **columns):
    found = History()
    found.record(round=1, participants=[0, 1, 2], test_accuracy=0.5)
    found.set_clients(name=names, num_examples=list(sizes)[: len(values)], **{column: values}, **columns)
    return found


def record(algorithm, values, seed=0, **options):
    return RunRecord(algorithm, seed, history(values, **options))


FEDERATED, ALONE, POOLED = [0.6, 0.8, 0.7], [0.5, 0.9, 0.4], [0.7, 0.9, 0.8]


def test_summary_equals_figures_by_hand():
    found = gains([record("fedavg", FEDERATED), record("local", ALONE), record("centralized", POOLED)])
    assert found is not None
    assert found.summary() == [
        ["fedavg", "local training", "+10.0", "67 %", "-10"],
        ["fedavg", "all data in one place", "-10.0", "0 %", "-10"],
    ]
    assert found.table() == (
        ["client", "fedavg, test accuracy (%)", "local, test accuracy (%)", "centralized, test accuracy (%)"],
        [["Chur", "70.0", "40.0", "80.0"], ["Basel", "60.0", "50.0", "70.0"], ["Bern", "80.0", "90.0", "90.0"]],
    )


def test_seeds_are_paired_and_averaged_where_clients_are_the_same():
    shift = np.array([0.1, 0.0, -0.1])
    runs = [record("fedavg", FEDERATED), record("fedavg", np.add(FEDERATED, shift), seed=1)]
    runs += [record("local", ALONE), record("local", ALONE, seed=1)]
    found = gains(runs)
    assert found is not None
    np.testing.assert_allclose(found.gain("fedavg", "local"), np.subtract(FEDERATED, ALONE) + shift / 2)
    np.testing.assert_allclose(found.gain("fedavg", "local", seed=1), np.subtract(FEDERATED, ALONE) + shift)
    assert found.summary()[0][2:4] == ["+10.0 ± 0.0", "67 %"]


def test_of_other_clients_in_each_seed_only_the_first_is_shown_by_client():
    runs = [record("fedavg", FEDERATED), record("fedavg", [0.0] * 3, seed=1, sizes=(5, 5, 50))]
    found = gains([*runs, record("local", ALONE), record("local", ALONE, seed=1)])
    assert found is not None
    np.testing.assert_allclose(found.scores["fedavg"], FEDERATED)


def test_less_is_better_for_errors_and_losses():
    runs = [record("fedavg", [2.0, 3.0, 4.0], column="test_loss"), record("local", [4.0, 3.0, 3.0], column="test_loss")]
    found = gains(runs)
    assert found is not None
    np.testing.assert_allclose(found.gain("fedavg", "local"), [2.0, 0.0, -1.0])


def test_there_are_no_gains_without_a_baseline_or_without_another_algorithm():
    assert gains([record("fedavg", FEDERATED), record("fedau", FEDERATED)]) is None
    assert gains([record("local", ALONE), record("centralized", POOLED)]) is None
    with pytest.raises(DataError, match="no run of local or centralized with the same clients"):
        gains_figure([record("fedavg", FEDERATED)])


def test_page_and_figure_name_the_clients(tmp_path):
    records = [record("fedavg", FEDERATED), record("local", ALONE)]
    page = write_report(records, tmp_path / "r.html").read_text("utf-8")
    assert "Who benefits" in page
    assert "<td>local training</td><td>+10.0</td><td>67 %</td><td>-10</td>" in page
    assert re.findall('<th scope="row">(Chur|Basel|Bern)</th>', page) == ["Chur", "Basel", "Bern"]
    axes = gains_figure(records).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["Chur", "Basel", "Bern"]
    dots = [np.asarray(collection.get_offsets())[:, 0].tolist() for collection in axes.collections[1:]]
    np.testing.assert_allclose(dots, [[70.0, 60.0, 80.0], [40.0, 50.0, 90.0]])
    assert "Who benefits" not in write_report(records[:1], tmp_path / "r.html").read_text("utf-8")


def test_table_of_influence_names_the_clients():
    counts = {"contributions": [3, 2, 1], "mean_staleness": [0.0, 1.0, 2.0], "influence": [0.5, 0.3, 0.2]}
    table = client_table([record("fedbuff", FEDERATED, **counts)])
    assert table is not None
    assert [row[0] for row in table.rows] == NAMES


def result(values, **options):
    return to.Result(history(values, **options), None, None)  # type: ignore[arg-type]


def test_gains_of_a_result_are_a_row_for_each_client():
    table = result(FEDERATED).gains(local=result(ALONE), centralized=result(POOLED))
    assert table["name"].to_pylist() == NAMES
    np.testing.assert_allclose(table["gain_over_local"].to_numpy(), np.subtract(FEDERATED, ALONE))
    np.testing.assert_allclose(table["gain_over_centralized"].to_numpy(), np.subtract(FEDERATED, POOLED))
    np.testing.assert_allclose(table["test_accuracy"].to_numpy(), FEDERATED)


@pytest.mark.parametrize(
    ("baselines", "message"),
    [
        ({}, r"write the results of baselines, such as gains\(local=result\)"),
        ({"alone": result(ALONE)}, "unknown baseline 'alone': known: centralized, local"),
        ({"local": result(ALONE[:2], names=NAMES[:2])}, "clients with other examples: give runs on the same data"),
        ({"local": result(ALONE, sizes=(10, 20, 31))}, "clients with other examples: give runs on the same data"),
        ({"local": result(ALONE, column="auc")}, "no score of clients .*client_test_fraction=0.2"),
    ],
)
def test_what_cannot_be_compared_says_what_to_write(baselines, message):
    with pytest.raises(ConfigurationError, match=message):
        result(FEDERATED).gains(**baselines)
