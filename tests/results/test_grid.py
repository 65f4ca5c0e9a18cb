"""Results of a sweep: ranking, table, figure and page."""

import csv as csv_format
import io
import math
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from turnout.core.checks import ConfigurationError, DataError
from turnout.record.query import History
from turnout.reporting.grid_figure import grid_figure
from turnout.reporting.svg import to_svg
from turnout.reporting.sweep_page import write_sweep
from turnout.results.grid import Sweep, assignments, grid_csv, grid_table, written
from turnout.results.measure import Measure
from turnout.results.records import RunRecord

ACCURACY = Measure("final", "test_accuracy")


def run(name, seed, accuracy):
    history = History()
    history.record(round=1, test_accuracy=accuracy, train_loss=1 - accuracy)
    return RunRecord(name, seed, history, {"algorithm": {"name": name}, "seed": seed})


def made(axes, accuracies, measure=ACCURACY, to_accuracy=None):
    """A sweep whose point i has the accuracies given, one for each seed."""
    from itertools import product

    points = {f"p{i}": dict(zip(axes, values, strict=True)) for i, values in enumerate(product(*axes.values()))}
    records = {
        name: [run(name, seed, value) for seed, value in enumerate(found)]
        for name, found in zip(points, accuracies, strict=True)
    }
    return Sweep({axis: tuple(values) for axis, values in axes.items()}, points, records, measure, to_accuracy)


AXES = {"local.lr": [0.1, 0.2, 0.3], "also.prox.mu": [0, 1]}
SIX = [[0.1, 0.3], [0.2, 0.2], [0.9, 0.7], [0.5, 0.6], [0.4, 0.4], [0.3, 0.3]]


def test_mean_over_seeds_determines_the_ranking():
    found = made(AXES, SIX)
    assert found.ranking == ["p2", "p3", "p4", "p5", "p0", "p1"]
    assert (found.best_point, found.best) == ("p2", {"local.lr": 0.2, "also.prox.mu": 0})
    assert (found.scores["p2"].value, found.scores["p2"].text) == (pytest.approx(0.8), "80.0 ± 14.1")


def test_values_are_drawn_literally():
    """The attack: values that matplotlib parses as mathematics, and control characters, which SVG forbids."""
    values = ["$HOME/a_b/$HOME", r"$\frac$", "a\x1b[3m", "a\udcff"]
    for axes in ({"$a$": values}, {"$a$": values, "b": [1, 2]}):
        picture = to_svg(grid_figure(made(axes, [[0.1]] * 4 * len(axes))), "map", "a map")
        assert all(text in picture for text in ("$HOME/a_b/$HOME", r"$\frac$", "a\ufffd[3m", "a\ufffd<", "$a$"))


def test_lower_is_better_if_the_measure_says_so():
    assert made(AXES, SIX, Measure("final", "train_loss")).ranking[0] == "p2"
    assert made({"a": [1, 2]}, [[0.1], [0.9]], Measure("rounds"), 0.5).best == {"a": 2}


def test_incomplete_or_diverged_point_is_never_best():
    assert made({"a": [1, 2, 3]}, [[0.99], [0.5, 0.5], []]).best == {"a": 2}
    found = made({"a": [1, 2]}, [[0.9, math.nan], [0.1, 0.1]])
    assert (found.best, found.scores["p0"].text) == ({"a": 2}, "diverged")
    with pytest.raises(ConfigurationError, match="no point of the grid has a finite figure of final test_accuracy"):
        _ = made({"a": [1]}, [[math.nan]]).best
    with pytest.raises(ConfigurationError, match="no point of the grid has a finite figure of rounds"):
        _ = made({"a": [1]}, [[0.1]], Measure("rounds"), 0.5).best


def test_best_point_for_every_value_of_an_axis():
    found = made({"algorithm": ["fedau", "mifa"], "lr": [1, 2]}, [[0.1], [0.2], [0.9], [0.3]])
    assert found.best_for("algorithm") == {"fedau": "p1", "mifa": "p2"}
    assert found.best_for("lr") == {"1": "p2", "2": "p3"}


def test_best_value_at_the_edge_of_the_grid_is_reported():
    assert made(AXES, SIX).at_the_edge == []  # 0.2 is inside, and with two values there is nothing but edges
    assert made({"lr": [3, 1, 2]}, [[0.9], [0.1], [0.2]]).at_the_edge == ["lr"]
    assert made({"name": ["a", "b", "c"]}, [[0.9], [0.1], [0.2]]).at_the_edge == []


def test_table_and_csv_have_every_point():
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(grid_table(made(AXES, SIX)))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert lines[1] == "local.lr also.prox.mu test accuracy (%)"
    assert "0.2 0 80.0 ± 14.1" in lines
    assert "mean ± standard deviation over 2 seeds" in lines
    rows = list(csv_format.DictReader(grid_csv(made(AXES, SIX)).splitlines()))
    assert len(rows) == 12
    assert rows[4] == {"local.lr": "0.2", "also.prox.mu": "0", "seed": "0", "final test_accuracy": "0.9"}


def test_values_are_formatted_as_command_arguments():
    assert [written(v) for v in (None, True, (64, 30), 0.1, "none")] == ["none", "true", "64,30", "0.1", "none"]
    assert assignments({"local.lr": {"kind": "cosine", "rounds": 3}, "a": 1}) == (
        "'local.lr={kind = \"cosine\", rounds = 3}' a=1"
    )


def axes_of(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.get_visible()]


def test_one_axis_is_a_line_with_dots_per_seed():
    (axes,) = axes_of(grid_figure(made({"lr": [0.01, 0.1, 1.0]}, [[0.1, 0.3], [0.9, 0.7], [math.nan, 0.2]])))
    line, *dots, ring = axes.lines
    np.testing.assert_allclose(line.get_xydata(), [[0.01, 20], [0.1, 80], [1.0, np.nan]])
    np.testing.assert_allclose(dots[0].get_xydata(), [[0.01, 10], [0.01, 30]])
    assert [len(each.get_xydata()) for each in dots] == [2, 2, 1]
    np.testing.assert_allclose(ring.get_xydata(), [[0.1, 80]])
    assert axes.get_xscale() == "log"
    (axes,) = axes_of(grid_figure(made({"algorithm": ["fedau", "mifa"]}, [[0.1], [0.2]])))
    assert [text.get_text() for text in axes.get_xticklabels()] == ["fedau", "mifa"]


def test_two_axes_are_a_heat_map_with_the_best_marked():
    (axes,) = axes_of(grid_figure(made(AXES, SIX)))
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.2, 0.2], [0.8, 0.55], [0.4, 0.3]])
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("local.lr", "also.prox.mu")
    assert [text.get_text() for text in axes.texts] == ["20.0", "20.0", "80.0", "55.0", "40.0", "30.0"]
    (ring,) = axes.patches
    assert (round(ring.get_x()), round(ring.get_y())) == (0, 1)


def test_further_axes_are_panels():
    panels = axes_of(grid_figure(made({**AXES, "seeded": ["x", "y"]}, [[i / 12] for i in range(12)])))
    assert [axes.get_title() for axes in panels] == ["seeded = x", "seeded = y"]
    np.testing.assert_allclose(panels[1].images[0].get_array(), np.array([[1, 3], [5, 7], [9, 11]]) / 12)
    assert [len(axes.patches) for axes in panels] == [0, 1]


def test_no_figure_without_finite_values():
    with pytest.raises(DataError, match="no point of the grid has a finite figure"):
        grid_figure(made({"a": [1]}, [[math.nan]]))


def test_page_names_the_best_point(tmp_path):
    html = write_sweep(made(AXES, SIX), tmp_path / "s.html", "a title").read_text(encoding="utf-8")
    for text in ("a title", "local.lr=0.2 also.prox.mu=0, 80.0 ± 14.1", 'class="picked">80.0 ± 14.1', "over 2 seeds"):
        assert text in html
    assert html.count("<svg ") == 3
    edge = write_sweep(made({"lr": [1, 2, 3]}, [[0.1], [0.2], [0.3]]), tmp_path / "e.html").read_text(encoding="utf-8")
    assert "The best lr is at the edge of the grid" in edge
