"""The figure of accuracy against cost."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from turnout.core.checks import DataError
from turnout.record.query import History
from turnout.reporting.curves import cost_figure
from turnout.results.measure import Target
from turnout.results.records import RunRecord


def run(algorithm, seed, accuracies, size, **columns):
    history = History()
    for i, accuracy in enumerate(accuracies, start=1):
        values = {"test_accuracy": accuracy} if accuracy is not None else {}
        history.record(round=i, bytes_up=size, bytes_down=size, **values, **columns)
    return RunRecord(algorithm, seed, history)


def panels(*arguments: Any) -> list[Any]:
    return list(cost_figure(*arguments).axes)


def test_means_are_drawn_against_rounds_and_mean_bytes():
    records = [run("a", 0, [None, 0.2, 0.4], 1_000_000), run("a", 1, [None, 0.4, 0.8], 2_000_000)]
    rounds, sent = panels(records, "test_accuracy", Target("test_accuracy", 0.5))
    np.testing.assert_allclose(rounds.lines[0].get_xydata(), [[2, 30], [3, 60]])
    np.testing.assert_allclose(sent.lines[0].get_xydata(), [[6, 30], [9, 60]])
    assert rounds.lines[1].get_ydata() == sent.lines[1].get_ydata() == [50, 50]
    assert (rounds.get_xlabel(), rounds.get_ylabel()) == ("round", "test accuracy (%)")
    assert sent.get_xlabel() == "sent so far, both ways (MB)"


def test_simulated_time_has_a_panel():
    records = [run("a", 0, [0.2, 0.4], 1, simulated_seconds=3.0), run("b", 0, [0.2, 0.4], 1)]
    drawn = panels(records, "test_accuracy")
    assert [len(axes.lines) for axes in drawn] == [2, 2, 1]
    np.testing.assert_allclose(drawn[2].lines[0].get_xydata(), [[3, 20], [6, 40]])


def test_algorithm_without_the_metric_is_omitted():
    bare = run("b", 0, [None, None], 1)
    drawn = panels([run("a", 0, [0.2, 0.4], 1), bare], "test_accuracy")
    assert [len(axes.lines) for axes in drawn] == [1, 1]
    with pytest.raises(DataError, match="no run recorded test_accuracy"):
        cost_figure([bare], "test_accuracy")


def test_different_magnitudes_are_visible():
    fast, slow = (run(name, 0, [0.2, 0.4], 1, simulated_seconds=time) for name, time in (("a", 3.0), ("b", 40.0)))
    assert [axes.get_xscale() for axes in panels([fast, slow], "test_accuracy")] == ["linear", "linear", "log"]
    alike = run("b", 0, [0.2, 0.4], 1, simulated_seconds=20.0)
    assert [axes.get_xscale() for axes in panels([fast, alike], "test_accuracy")] == ["linear"] * 3
    nothing = run("b", 0, [0.2, 0.4], 1, simulated_seconds=0.0)
    assert panels([fast, nothing], "test_accuracy")[2].get_xscale() == "linear"
