"""Measures of runs."""

import math
from typing import Any

import pytest

from turnout.core.checks import ConfigurationError
from turnout.record.query import History
from turnout.results.measure import Measure, Target
from turnout.results.records import RunRecord
from turnout.results.statistics import Quartiles


def run(**columns):
    """A run that is evaluated every round."""
    history = History()
    for i in range(len(next(iter(columns.values())))):
        history.record(round=i + 1, **{name: values[i] for name, values in columns.items()})
    return RunRecord("a", 0, history)


ACCURACY = run(test_accuracy=[0.2, 0.6, 0.5, 0.9, 0.7, 0.8], bytes_up=[10] * 6)
LOSS = run(train_loss=[4.0, 2.0, 1.0, 3.0, 2.5, 1.5])


@pytest.mark.parametrize(
    ("measure", "record", "figure"),
    [
        ("final test_accuracy", ACCURACY, 0.8),
        ("average test_accuracy", ACCURACY, 3.7 / 6),
        ("largest_fall test_accuracy", ACCURACY, 0.2),  # the fall from round 2 to 3 is in the first half
        ("final train_loss", LOSS, 1.5),
        ("average train_loss", LOSS, 14.0 / 6),
        ("largest_fall train_loss", LOSS, 0.0),  # a loss falls for the worse when it rises, here in the first half
        ("largest_fall test_accuracy", run(test_accuracy=[0.5]), 0.0),
    ],
)
def test_measures_equal_known_values(measure, record, figure):
    assert Measure.read(measure).of(record) == pytest.approx(figure)


def test_run_that_diverged_has_the_largest_fall():
    assert (
        Measure.read("largest_fall train_loss").of(run(train_loss=[4.0, 2.0, 1.0, 1.0, math.nan, math.nan])) == math.inf
    )
    assert (
        Measure.read("largest_fall train_loss").of(run(train_loss=[4.0, 2.0, 1.0, 1.0, math.inf, math.inf])) == math.inf
    )


def test_spread_is_the_standard_deviation_over_clients_at_the_end():
    record = run(train_accuracy=[0.5, 0.6])
    record.history.set_clients(client=[0, 1, 2], train_accuracy=[0.4, None, 0.8], train_loss=[math.nan] * 3)
    measure = Measure.read("spread train_accuracy")
    assert measure.of(record) == pytest.approx(0.2)  # clients without a value do not count
    assert (measure.less_is_better, measure.title) == (True, "standard deviation over clients of training accuracy (%)")
    assert Measure.read("spread train_loss").of(record) == math.inf  # it diverged
    with pytest.raises(ConfigurationError, match="spread test_accuracy: the run of a recorded no test_accuracy"):
        Measure.read("spread test_accuracy").of(record)
    with pytest.raises(ConfigurationError, match="unknown client column 'appeal'"):
        Measure.read("spread appeal").of(record)


def test_measure_that_is_no_text_is_refused():
    wrong: Any = ("final", "test_accuracy")
    with pytest.raises(ConfigurationError, match=r"measure: got .*, needed a text, such as 'final test_accuracy'"):
        Measure.read(wrong)


def test_increase_of_a_loss_is_negative():
    assert Measure.read("largest_fall train_loss").of(run(train_loss=[9.0, 1.0, 1.0, 2.5])) == 1.5


def test_cost_until_the_target():
    target = Target("test_accuracy", 0.55)
    assert Measure.read("rounds").of(ACCURACY, target) == 2
    assert Measure.read("bytes").of(ACCURACY, target) == 20
    assert Measure.read("rounds").of(ACCURACY, Target("test_accuracy", 0.95)) == math.inf
    with pytest.raises(ConfigurationError, match="the run of a recorded no simulated_seconds"):
        Measure.read("simulated_seconds").of(ACCURACY, target)
    with pytest.raises(ConfigurationError, match=r"measure 'rounds' needs a target: write to_accuracy = 0\.7"):
        Measure.read("rounds").of(ACCURACY)


def test_diverged_run_has_the_worst_value():
    assert Measure.read("final train_loss").of(run(train_loss=[1.0, math.nan])) == math.inf
    assert Measure.read("average test_accuracy").of(run(test_accuracy=[0.5, math.nan])) == -math.inf


@pytest.mark.parametrize(
    ("measure", "less", "title"),
    [
        ("final test_accuracy", False, "test accuracy (%)"),
        ("largest_fall test_accuracy", True, "largest fall of test accuracy, second half (%)"),
        ("average train_loss", True, "training loss, mean over rounds"),
        ("rounds", True, "rounds"),
        ("bytes", True, "sent (MB)"),
    ],
)
def test_direction_and_name_of_measures(measure, less, title):
    assert (Measure.read(measure).less_is_better, Measure.read(measure).title) == (less, title)
    assert str(Measure.read(measure)) == measure


def test_values_are_formatted():
    accuracy, rounds = Measure.read("final test_accuracy"), Measure.read("rounds")
    assert accuracy.shown(Quartiles(0.768, 0.7712, 0.775, 3, 3)) == "77.1 (76.8 to 77.5)"
    assert accuracy.shown(Quartiles(0.5, 0.5, 0.5, 1, 1)) == "50.0"
    assert accuracy.shown(Quartiles(-math.inf, 0.5, 0.6, 2, 3)) == "50.0 (– to 60.0)"
    assert accuracy.shown(Quartiles.over([-math.inf])) == "diverged"
    assert rounds.shown(Quartiles(19, 25, math.inf, 2, 3)) == "25 (19 to ∞)"
    assert rounds.shown(Quartiles.over([math.inf])) == "not reached"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("finale test_accuracy", "unknown measure 'finale': did you mean 'final'"),
        ("final", "measure 'final': write 'final test_accuracy'"),
        ("rounds test_accuracy", "measure 'rounds test_accuracy': write 'rounds'"),
    ],
)
def test_invalid_measures_are_refused(text, message):
    with pytest.raises(ConfigurationError, match=message):
        Measure.read(text)


def test_unrecorded_measure_is_refused():
    with pytest.raises(ConfigurationError, match="unknown column 'appeal'"):
        Measure.read("final appeal").of(ACCURACY)
    with pytest.raises(ConfigurationError, match="final test_accuracy: the run of a recorded no test_accuracy"):
        Measure.read("final test_accuracy").of(LOSS)
