"""The pictures of a reproduction show the numbers they claim to show."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from turnout.core.checks import ConfigurationError, DataError
from turnout.reporting.measure import Measure
from turnout.reporting.style import PALETTE
from turnout.reproduce import Curve
from turnout.reproduce.page import write_outcome
from turnout.reproduce.pictures import curve_figure, measure_figure, paper_number


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


def test_without_a_band_the_first_seed_is_drawn_as_it_is(outcome):
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


def test_what_there_is_not_is_said(outcome):
    with pytest.raises(DataError, match="no run recorded appeal"):
        curve_figure(outcome, Curve("appeal"))
    with pytest.raises(DataError, match="what it is drawn against, simulated_seconds"):
        curve_figure(outcome, Curve("test_accuracy", against="simulated_seconds"))
    nobody = type(outcome)(outcome.reproduction, {"hard": outcome.records["hard"]})
    with pytest.raises(DataError, match="no run has a finite figure of rounds"):
        measure_figure(nobody, Measure("rounds"))


@pytest.mark.parametrize(
    ("written", "number"),
    [(50, 50.0), (0.5, 0.5), ("77.3 ± 0.3", 77.3), ("-1", -1.0), ("not within 40", None), (None, None)],
)
def test_the_number_in_a_figure_of_the_paper(written, number):
    assert paper_number(written) == number


def test_the_page_tells_claims_figures_and_changes(outcome, tmp_path, monkeypatch):
    html = write_outcome(outcome, tmp_path / "new" / "r.html").read_text(encoding="utf-8")
    for text in (
        "Fast against slow", "Somebody, Table 7", "Not the declared setting: 2 seeds instead of 4.", "Fast is faster",
        'class="holds">holds', "true of 4 of 4 seeds", "easy data, 50 %", "80 ± 1", "80.0 (80.0 to 80.0)", "not reached",
        "Nothing is left open.", "easy data: fast",
    ):  # fmt: skip
        assert text in html, text
    assert html.count("<svg ") == 5
    assert "#6b7684" not in html.lower()
    import sys

    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError, match="need Jinja2"):
        write_outcome(outcome, tmp_path / "r.html")
