"""The pictures of a reproduction show the numbers they claim to show."""

from dataclasses import replace
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg

from turnout.core.checks import ConfigurationError, DataError
from turnout.reporting.style import PALETTE, dress, evenly_wrapped, new_figure
from turnout.results.measure import Measure
from turnout.workbench.reproduction.declaration import Curve
from turnout.workbench.reproduction.pictures import curve_figure, measure_figure, paper_number
from turnout.workbench.reproduction.table import write_outcome


def axes_of(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.get_visible()]


def test_every_panel_has_axes_with_medians_and_quartiles(outcome):
    easy, hard = axes_of(curve_figure(outcome, Curve("test_accuracy")))
    assert (easy.get_title(), hard.get_title()) == ("easy data", "hard data")
    fast, slow, target = easy.lines
    np.testing.assert_allclose(fast.get_xydata(), [[1, 30], [2, 60], [3, 80]])
    np.testing.assert_allclose(slow.get_ydata(), [10, 20, 50])
    assert [line.get_color() for line in (fast, slow)] == list(PALETTE[:2])
    assert target.get_ydata() == [50, 50]
    band = easy.collections[1].get_paths()[0].vertices
    assert {round(y) for x, y in band if x == 3} == {48, 50}  # 0.25 between 0.4 and 0.5, and 0.5
    assert (easy.get_ylabel(), hard.get_ylabel()) == ("test accuracy (%)", "")
    assert easy.get_ylim() == hard.get_ylim(), "accuracies can be compared between panels"


def test_curves_against_bytes_and_on_logarithmic_axes(outcome):
    easy, _ = axes_of(curve_figure(outcome, Curve("test_accuracy", against="bytes", log="x")))
    np.testing.assert_allclose(easy.lines[0].get_xdata(), [1, 2, 3])
    assert (easy.get_xscale(), easy.get_yscale(), easy.get_xlabel()) == ("log", "linear", "sent so far, both ways (MB)")
    easy, _ = axes_of(curve_figure(outcome, Curve("train_loss", log="y")))
    assert (easy.get_yscale(), len(easy.lines)) == ("log", 2), "the accuracy to reach is no loss"


def many(outcome: Any, titles: list[str]) -> Any:
    """The same runs as so many panels."""
    easy = outcome.reproduction.panels["easy"]
    panels = {f"p{i}": replace(easy, name=f"p{i}", title=title) for i, title in enumerate(titles)}
    records = dict.fromkeys(panels, outcome.records["easy"])
    return type(outcome)(replace(outcome.reproduction, panels=panels), records)


def boxes(figure: Any, axes: Any) -> list[Any]:
    """Where what is written around axes is, in pixels."""
    drawn = figure.canvas.get_renderer()
    return [axes.xaxis.get_tightbbox(drawn), axes.yaxis.get_tightbbox(drawn), axes.title.get_window_extent(drawn)]


LONG = "(d) MNIST, different K, m = n, gamma = 0.0005"


@pytest.mark.parametrize(
    ("draw", "title"),
    [
        (lambda o: curve_figure(o, Curve("train_loss", log="y")), LONG),
        (lambda o: measure_figure(o, Measure("final", "test_accuracy")), "short"),
    ],
)
def test_labels_around_panels_do_not_overlap(outcome, draw, title):
    """Neither names of axes, ticks nor titles overlap, nor are they cut at the edges of the figure."""
    figure = draw(many(outcome, [title] * 5))
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    around = [boxes(figure, axes) for axes in axes_of(figure)]
    assert len(around) == 5
    least = 0.12 * figure.dpi  # inches between what belongs to different panels
    for one, other in combinations(around, 2):
        for a, b in product(one, other):
            assert max(a.x0 - b.x1, b.x0 - a.x1, a.y0 - b.y1, b.y0 - a.y1) > least
    for box in chain(*around):
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height


def test_axis_labels_are_at_the_left_and_bottom_and_rounds_are_integers(outcome):
    grid = axes_of(curve_figure(many(outcome, ["one", "two", "three", "four"]), Curve("test_accuracy")))
    assert [bool(axes.get_ylabel()) for axes in grid] == [True, False, False, True]
    assert [axes.get_xlabel() for axes in grid] == ["", "round", "round", "round"]
    assert all(tick == int(tick) for axes in grid for tick in axes.get_xticks())
    grid = axes_of(measure_figure(many(outcome, ["one", "two", "three", "four"]), Measure("rounds")))
    assert [axes.get_xlabel() for axes in grid] == ["", "rounds", "rounds", "rounds"]


@pytest.mark.parametrize(
    ("title", "most", "lines"),
    [
        ("(a) different gamma: 0.02, 0.01, 0.005", 39, ["(a) different gamma: 0.02, 0.01, 0.005"]),
        ("(a) different gamma: 0.02, 0.01, 0.005", 35, ["(a) different gamma:", "0.02, 0.01, 0.005"]),
        ("(d) different K, m = n, gamma = 0.005", 35, ["(d) different K,", "m = n, gamma = 0.005"]),
        ("unbreakable_and_long of", 16, ["unbreakable_and_long", "of"]),
    ],
)
def test_long_titles_have_several_lines_of_about_the_same_length(title, most, lines):
    assert evenly_wrapped(title, most) == lines


def test_first_seed_is_drawn_without_a_band(outcome):
    easy, _ = axes_of(curve_figure(outcome, Curve("test_accuracy", band=False)))
    np.testing.assert_allclose(easy.lines[1].get_ydata(), [10, 20, 40])
    assert not easy.collections


def test_dots_are_medians_and_diamonds_the_papers(outcome):
    easy, hard = axes_of(measure_figure(outcome, Measure("rounds")))
    assert easy.get_title() == "easy data, 50 %"
    assert [text.get_text() for text in easy.get_yticklabels()] == ["fast", "slow"]
    drawn = {line.get_marker(): line.get_xydata().tolist() for line in easy.lines if line.get_marker() != "None"}
    assert drawn["o"] == [[3.0, 1.0]]  # the last one, slow
    assert drawn["D"] == [[1000.0, 1.0]]
    assert ">" not in drawn, "all quartiles are finite"
    assert [line.get_marker() for line in hard.lines] == ["None", ">", "None", ">"]


def test_missing_columns_are_refused(outcome):
    with pytest.raises(DataError, match="no run recorded both appeal and rounds"):
        curve_figure(outcome, Curve("appeal"))
    with pytest.raises(DataError, match="no run recorded both test_accuracy and simulated_seconds"):
        curve_figure(outcome, Curve("test_accuracy", against="simulated_seconds"))
    nobody = type(outcome)(outcome.reproduction, {"hard": outcome.records["hard"]})
    with pytest.raises(DataError, match="no run has a finite figure of rounds"):
        measure_figure(nobody, Measure("rounds"))


@pytest.mark.parametrize(
    ("written", "number"),
    [(50, 50.0), (0.5, 0.5), ("77.3 ± 0.3", 77.3), ("-1", -1.0), ("not within 40", None), (None, None)],
)
def test_figure_numbers_are_parsed(written, number):
    assert paper_number(written) == number


def test_page_lists_claims_figures_and_changes(outcome, tmp_path, monkeypatch):
    html = write_outcome(outcome, tmp_path / "new" / "r.html").read_text(encoding="utf-8")
    for text in (
        "Fast against slow", "Somebody, Table 7", "Not the declared setting: 2 seeds instead of 4.", "Fast is faster",
        'class="holds">holds', "true of 4 of 4 seeds", "easy data, 50 %", "80 ± 1", "80.0 (80.0 to 80.0)", "not reached",
        "Nothing is left open.", "easy data: fast", '<span>easy data, 50 %',
    ):  # fmt: skip
        assert text in html, text
    assert html.count("<svg ") == 5
    assert "#6b7684" not in html.lower()
    import sys

    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError, match="needs Jinja2"):
        write_outcome(outcome, tmp_path / "r.html")


def test_long_label_of_the_vertical_axis_fits():
    whole = new_figure(5.2, 2.9)
    axes = whole.add_subplot()
    dress(axes, "round", "test accuracy of labels 0, 1, 2, 3, 4 (%)")
    whole.draw_without_rendering()
    box = axes.yaxis.label.get_window_extent()
    assert box.y0 >= 0
    assert box.y1 <= 2.9 * whole.dpi
