"""The cost of reaching a target."""

import csv as csv_format
import io
import math

import pytest
from rich.console import Console

from turnout.core.checks import ConfigurationError
from turnout.record.query import History
from turnout.results.column import COLUMNS, COST
from turnout.results.formats import csv
from turnout.results.measure import Target, accuracy_target, costs
from turnout.results.records import RunRecord
from turnout.results.statistics import Quartiles, number
from turnout.results.table import cells, comparison, rich_table

TARGET = Target("test_accuracy", 0.7)


def run(algorithm, seed, accuracies, **columns):
    """A run with one evaluation a round; every other column has one value, that of each round."""
    history = History()
    for i, accuracy in enumerate(accuracies, start=1):
        history.record(round=i, test_accuracy=accuracy, **columns)
    return RunRecord(algorithm, seed, history)


@pytest.fixture
def records():
    sent = {"bytes_up": 2_000_000, "bytes_down": 500_000}
    return [
        run("fast", 0, [0.5, 0.7, 0.6], **sent),
        run("fast", 1, [0.8, 0.9, 0.9], **sent),
        run("slow", 0, [0.1, 0.2, 0.9], **sent),
        run("slow", 1, [0.1, 0.2, 0.3], **sent),
        run("never", 0, [0.1, 0.1, 0.1], **sent),
        run("never", 1, [0.1, 0.1, 0.1], **sent),
    ]


def test_costs_are_those_of_the_first_round_at_the_target(records):
    spent = costs(records, TARGET)
    assert list(spent) == ["fast", "slow", "never"]
    rounds = Quartiles(1, 1.5, 2, 2, 2)
    assert spent["fast"] == {
        "reached": rounds,
        "rounds_to_target": rounds,
        "bytes_to_target": Quartiles(2.5e6, 3.75e6, 5e6, 2, 2),
    }
    assert (spent["slow"]["rounds_to_target"].median, spent["slow"]["rounds_to_target"].high) == (3, math.inf)
    assert spent["never"]["bytes_to_target"].median == math.inf


def test_table_reports_unreached_targets_and_marks_the_minimum(records):
    rows = comparison(records, target=TARGET)
    keys, lines = cells(rows, COST)
    assert [COLUMNS[key].title for key in keys] == ["reached by", "rounds", "sent (MB)"]
    assert lines == [
        [("2/2", False), ("1.50 (1 to 2)", True), ("3.75 (2.50 to 5)", True)],
        [("1/2", False), ("3 (3 to ∞)", False), ("7.50 (7.50 to ∞)", False)],
        [("0/2", False), ("not reached", False), ("not reached", False)],
    ]
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(rich_table(rows, COST, f"until {TARGET}"))
    text = console.export_text()
    assert "until test accuracy 70 %" in text
    assert ["never", "0/2", "not", "reached", "not", "reached"] in [line.split() for line in text.splitlines()]
    assert "median (quartiles) over 2 seeds" in text


def test_nothing_is_marked_if_no_run_reached_the_target(records):
    _, lines = cells(comparison(records, target=Target("test_accuracy", 0.95)), COST)
    assert {text for line in lines for text, _ in line} == {"0/2", "not reached"}
    assert not any(best for line in lines for _, best in line)


def test_recorded_simulated_time_has_a_column():
    records = [run("a", 0, [0.7], simulated_seconds=12.5), run("b", 0, [0.7])]
    keys, lines = cells(comparison(records, target=TARGET), COST)
    assert keys == ["reached", "rounds_to_target", "simulated_seconds_to_target"]
    assert [[text for text, _ in line] for line in lines] == [["1/1", "1", "12.5"], ["1/1", "1", "–"]]


def test_csv_reports_unreached_targets(records):
    lines = list(csv_format.DictReader(csv(comparison(records, target=TARGET)).splitlines()))
    assert [line["reached"] for line in lines] == ["2", "1", "0"]
    assert [line["rounds_to_target_median"] for line in lines] == ["1.5", "3.0", "inf"]
    assert lines[1]["bytes_to_target_high"] == "inf"
    assert "simulated_seconds_to_target_median" not in lines[0]
    assert "reached" not in csv(comparison(records))


def test_target_uses_test_accuracy_or_else_training_accuracy():
    trained = RunRecord("a", 0, History())
    trained.history.record(round=1, train_accuracy=0.9)
    assert accuracy_target([trained], 0.7) == Target("train_accuracy", 0.7)
    assert accuracy_target([trained, run("b", 0, [0.1])], 0.7) == TARGET
    assert str(Target("train_accuracy", 0.725)) == "training accuracy 72.5 %"
    assert str(Target("gradient_norm", 0.001)) == "gradient norm 0.001"


@pytest.mark.parametrize("bad", [0, -0.1, 1.5, True, "0.7", math.nan, 101])
def test_invalid_accuracy_is_refused(bad):
    with pytest.raises(
        ConfigurationError, match=r"to_accuracy: got .*, needed a share of the examples, 0 < accuracy <= 1"
    ):
        accuracy_target([run("a", 0, [0.1])], bad)


def test_percentages_are_refused_with_the_correct_spelling():
    with pytest.raises(ConfigurationError, match=r"Write 0\.7 for 70 %"):
        accuracy_target([run("a", 0, [0.1])], 70)


def test_unrecorded_column_is_refused():
    with pytest.raises(ConfigurationError, match=r"no run recorded appeal: needed one of .*test_accuracy"):
        costs([run("a", 0, [0.1])], Target("appeal", 0.5))


def test_run_without_the_column_did_not_reach_the_target():
    with_it = run("a", 0, [0.1], appeal=0.6)
    spent = costs([with_it, run("b", 0, [0.1])], Target("appeal", 0.5))
    assert [COLUMNS["reached"].show(figures["reached"]) for figures in spent.values()] == ["1/1", "0/1"]


def test_numbers_have_three_significant_digits():
    written = [number(x) for x in (0, 7, 1234567, 1234.5, 12.34, 1.2345, 0.01234, 0.00963, -2.34e-7, math.inf)]
    assert written == ["0", "7", "1,234,567", "1,234", "12.3", "1.23", "0.012", "0.0096", "-2.3e-07", "inf"]
    assert Quartiles(1, 2, 3, 3, 3).shown(scale=0.5) == "1 (0.500 to 1.50)"
