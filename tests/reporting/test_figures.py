"""Figures draw the recorded numbers."""

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from turnout.core.checks import ConfigurationError, DataError
from turnout.population.availability import Everyone
from turnout.record.query import History
from turnout.reporting.availability_figure import availability_figure
from turnout.reporting.class_figures import calibration_figure
from turnout.reporting.client_figures import client_cdf, participation_raster, weights_against_rates
from turnout.reporting.curves import curves, styles
from turnout.reporting.style import INK, PALETTE, new_figure, scatter
from turnout.results.influence import evenly
from turnout.results.records import RunRecord


def recorded(algorithm, seed, name, values, every=1):
    history = History()
    for i, value in enumerate(values, start=1):
        history.record(round=i * every, **{name: value})
    return RunRecord(algorithm, seed, history)


def panels(figure: Figure) -> list[Any]:
    return list(figure.axes)


def lines(figure: Figure) -> list[Any]:
    return [line for axes in figure.axes for line in axes.lines]


def dots(figure: Figure) -> np.ndarray:
    return np.asarray(figure.axes[0].collections[0].get_offsets())


def test_single_value_is_a_dot_and_shared_colors_have_end_markers():
    names = [f"rule {i}" for i in range(len(PALETTE) + 1)]
    drawn = lines(curves([recorded(name, 0, "test_accuracy", [0.1, 0.5]) for name in names], "test_accuracy"))
    assert [line.get_marker() for line in drawn] == ["None"] * len(PALETTE) + ["s"]
    assert drawn[-1].get_markevery() == [-1]
    first, last = lines(curves([recorded(name, 0, "test_accuracy", [0.5]) for name in names[-2:]], "test_accuracy"))
    assert (first.get_marker(), last.get_marker()) == ("o", "o")


def test_dots_are_opaque_unless_numerous():
    rng = np.random.default_rng(0)
    for number, alpha in ((500, 1.0), (501, 0.5)):
        axes = new_figure().subplots()
        x, y = rng.random((2, number))
        scatter(axes, x, y, 10, 0.5, {"color": PALETTE[0], "gid": "series:a", "marker": "^"})
        assert axes.collections[0].get_alpha() == alpha
        assert len(np.asarray(axes.collections[0].get_paths()[0].vertices)) == 4, "a triangle"


def test_curve_is_the_mean_over_seeds_in_percent():
    records = [recorded("a", 0, "test_accuracy", [0.1, 0.5]), recorded("a", 1, "test_accuracy", [0.3, 0.5])]
    figure = curves(records, "test_accuracy")
    np.testing.assert_allclose(lines(figure)[0].get_xydata(), [[1, 20], [2, 50]])
    band = panels(figure)[0].collections[0].get_paths()[0].vertices
    spread = 100 * math.sqrt(0.02)
    np.testing.assert_allclose(sorted({round(y, 6) for x, y in band if x == 1}), [20 - spread, 20 + spread], atol=1e-5)
    assert panels(figure)[0].get_xlabel() == "round"
    assert panels(figure)[0].get_ylabel() == "test accuracy (%)"


def test_smooth_curve_averages_all_seeds_over_three_percent_of_rounds():
    rng = np.random.default_rng(0)
    values = rng.random((2, 100))
    records = [recorded("a", seed, "cosine", values[seed], every=2) for seed in range(2)]
    x, y = lines(curves(records, "cosine", smooth=True))[0].get_data()
    assert x.tolist() == list(range(2, 201, 2))
    # 3 % of 200 rounds are 6 rounds: three evaluations of each seed, the last at the round itself.
    expected = [values[:, max(0, i - 2) : i + 1].mean() for i in range(100)]
    np.testing.assert_allclose(y, expected)


def test_diverged_round_is_a_gap():
    records = [recorded("a", 0, "test_loss", [1.0, 1.0, 1.0]), recorded("a", 1, "test_loss", [1.0, math.nan, math.inf])]
    assert np.isnan(lines(curves(records, "test_loss"))[0].get_ydata()).tolist() == [False, True, True]


def test_seeds_are_averaged_at_their_common_rounds():
    records = [recorded("a", 0, "test_loss", [1.0, 2.0]), recorded("a", 1, "test_loss", [4.0], every=2)]
    np.testing.assert_allclose(lines(curves(records, "test_loss"))[0].get_xydata(), [[2, 3]])
    apart = [recorded("a", 0, "test_loss", [1.0]), recorded("a", 1, "test_loss", [4.0], every=2)]
    np.testing.assert_allclose(lines(curves(apart, "test_loss"))[0].get_xydata(), [[1, 1], [2, 4]])


@pytest.mark.parametrize("smooth", [False, True])
def test_curve_ends_with_the_first_run_that_ends(smooth):
    """The mean over those that go on would jump, as if all had changed."""
    records = [recorded("a", seed, "test_loss", [1.0 + seed] * rounds) for seed, rounds in enumerate((40, 100))]
    x, y = lines(curves(records, "test_loss", smooth=smooth))[0].get_data()
    assert x[-1] == (42 if smooth else 40)
    assert y[:40].tolist() == [1.5] * 40


@pytest.mark.parametrize(("losses", "scale"), [([2.0, 0.5], "linear"), ([200.0, 0.5], "log"), ([2.0, 0.0], "linear")])
def test_loss_over_several_magnitudes_has_a_logarithmic_axis(losses, scale):
    assert panels(curves([recorded("a", 0, "train_loss", losses)], "train_loss"))[0].get_yscale() == scale


def test_long_runs_are_thinned_and_keep_their_ends():
    x, y = lines(curves([recorded("a", 0, "test_loss", np.arange(5000.0))], "test_loss"))[0].get_data()
    assert len(x) <= 300
    assert (x[0], x[-1], y[-1]) == (1, 5000, 4999)
    assert evenly(3, 10).tolist() == [0, 1, 2]


def test_algorithms_have_one_color_in_all_figures(make_runs):
    records = make_runs(1, ("average_all", "known_statistics", "fedau"))
    looks = {name: look["color"] for name, look in styles(records).items()}
    assert len(set(looks.values())) == 3
    assert [line.get_color() for line in lines(curves(records, "test_accuracy"))] == list(looks.values())
    assert [line.get_color() for line in lines(client_cdf(records))] == list(looks.values())
    shown = {
        axes.get_title(): to_hex(axes.collections[0].get_facecolor()[0])
        for axes in panels(weights_against_rates(records))
    }
    assert shown == {name: looks[name].lower() for name in ("known_statistics", "fedau")}


def test_more_algorithms_than_colors_differ_in_dashes():
    records = [recorded(f"a{i}", 0, "test_loss", [1.0, 2.0]) for i in range(3 * len(PALETTE))]
    assert len({(look["color"], look["linestyle"]) for look in styles(records).values()}) == len(records)


def test_cdf_covers_clients_of_all_seeds():
    records = []
    for seed, values in enumerate([[0.2, math.nan, 0.6], [0.4, 0.8]]):
        record = recorded("a", seed, "test_loss", [1.0])
        record.history.set_clients(test_accuracy=values)
        records.append(record)
    np.testing.assert_allclose(
        lines(client_cdf(records))[0].get_xydata(), [[20, 0], [20, 25], [40, 50], [60, 75], [80, 100]]
    )


def test_known_statistics_lie_on_the_diagonal(make_run):
    figure = weights_against_rates([make_run("known_statistics")])
    points = dots(figure)
    assert len(points) == 30
    np.testing.assert_allclose(points[:, 0], points[:, 1])
    diagonal = lines(figure)[0].get_xydata()
    np.testing.assert_allclose(diagonal[:, 0], diagonal[:, 1])


def test_clients_without_rate_or_weight_are_omitted():
    record = recorded("a", 0, "test_loss", [1.0])
    record.history.set_clients(weight=[2.0, math.nan, 3.0, 4.0], known_rate=[0.5, 0.5, 0.0, 0.1])
    points = dots(weights_against_rates([record]))
    np.testing.assert_allclose(points, [[2.0, 2.0], [10.0, 4.0]])


def test_many_clients_are_thinned_over_the_whole_range():
    record = recorded("a", 0, "test_loss", [1.0])
    rates = np.geomspace(1e-4, 1, 100_000)
    record.history.set_clients(weight=1 / rates, known_rate=rates)
    points = dots(weights_against_rates([record]))
    assert len(points) <= 2000
    assert (points[:, 0].min(), points[:, 0].max()) == (1.0, pytest.approx(1e4))


def test_raster_shows_participation():
    history = History()
    for r, present in enumerate([[1], [1, 2], [1], []], start=1):
        history.record(round=r, participants=np.array(present, dtype=int))
    history.set_clients(num_examples=[5, 5, 5])
    left, right = panels(participation_raster(RunRecord("a", 0, history)))
    np.testing.assert_array_equal(left.images[0].get_array(), [[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    assert left.get_ylabel() == "3 clients, by rate"
    assert right.get_xlabel() == "rate (%)"
    history.set_clients(num_examples=[5, 5, 5], known_rate=[0.9, 0.1, 0.5])
    known = participation_raster(RunRecord("a", 0, history))
    np.testing.assert_array_equal(panels(known)[0].images[0].get_array(), [[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0]])
    assert panels(known)[1].lines[0].get_xdata().tolist() == [90, 50, 10]


def test_raster_names_few_clients():
    history = History()
    history.record(round=1, participants=[1, 2])
    history.record(round=2, participants=[1])
    history.set_clients(num_examples=[5, 5, 5], name=["north", "a hospital with a very long name", "$west$"])
    left = panels(participation_raster(RunRecord("a", 0, history)))[0]
    assert [text.get_text() for text in left.get_yticklabels()] == ["a hospital with a ver…", "$west$", "north"]


def test_raster_of_many_rounds_shades_by_fraction():
    history = History()
    for r in range(1, 6001, 2):  # every other round is recorded
        history.record(round=r, participants=[0] if r <= 3000 else [])
    image = panels(participation_raster(RunRecord("a", 0, history)))[0].images[0].get_array()
    assert image.shape == (1, 600)
    np.testing.assert_array_equal(image[0], np.repeat([1.0, 0.0], 300))


def test_raster_of_a_million_clients_shows_two_hundred():
    history, rng = History(), np.random.default_rng(0)
    for r in range(1, 51):
        history.record(round=r, participants=rng.integers(0, 10**6, 100))
    history.set_clients(known_rate=rng.random(10**6))
    left, _ = panels(participation_raster(RunRecord("a", 0, history)))
    assert left.images[0].get_array().shape == (200, 50)
    assert left.get_ylabel() == "200 of 1,000,000\nclients, by rate"


def test_missing_columns_are_reported(make_run):
    bare = make_run(clients=False, rates=False, evaluate=False)
    with pytest.raises(DataError, match="no run recorded test_accuracy"):
        curves([bare], "test_accuracy")
    with pytest.raises(ConfigurationError, match="unknown column 'test_acuracy': did you mean 'test_accuracy'"):
        curves([bare], "test_acuracy")
    with pytest.raises(DataError, match="no run counted predictions: they need test examples with class labels"):
        calibration_figure([bare])
    with pytest.raises(DataError, match="no run has client-wise accuracies"):
        client_cdf([bare])
    with pytest.raises(DataError, match="no run has both weights of its clients and known participation rates"):
        weights_against_rates([bare, make_run("average_all")])
    with pytest.raises(DataError, match="no participants were recorded"):
        participation_raster(recorded("a", 0, "test_loss", [1.0]))


def test_text_color_is_replaced_by_the_page(make_run):
    axes = panels(curves([make_run()], "test_accuracy"))[0]
    assert {axes.xaxis.label.get_color(), axes.yaxis.label.get_color(), axes.get_xticklabels()[0].get_color()} == {INK}


def test_axis_limits_focus_on_converged_curves():
    record = recorded("a", 0, "test_accuracy", [0.95 - 0.85 * math.exp(-round / 5) for round in range(1, 101)])
    low, high = panels(curves([record], "test_accuracy", smooth=True))[0].get_ylim()
    assert 93 < low < high < 96
    assert panels(curves([record], "test_accuracy"))[0].get_ylim()[0] < 30
    rising = recorded("a", 0, "test_accuracy", np.linspace(0.1, 0.9, 50))
    assert panels(curves([rising], "test_accuracy", smooth=True))[0].get_ylim()[0] < 15


def test_equally_weighting_algorithms_are_omitted(make_run):
    alike = make_run("mifa")
    alike.history.set_clients(weight=np.ones(30), known_rate=np.linspace(0.1, 1, 30))
    shown = [axes.get_title() for axes in panels(weights_against_rates([make_run("known_statistics"), alike]))]
    assert shown == ["known_statistics"]
    assert [axes.get_title() for axes in panels(weights_against_rates([alike]))] == ["mifa"]


@pytest.mark.parametrize(
    ("number", "num_rounds", "message"),
    [
        (0, 100, "patterns: got 0, needed 1 to 4"),
        (5, 100, "patterns: got 5, needed 1 to 4"),
        (1, 9, "num_rounds: got 9, needed at least 10"),
    ],
)
def test_figure_of_availability_has_limits(number, num_rounds, message):
    patterns = {str(i): Everyone().bind(3) for i in range(number)}
    with pytest.raises(ConfigurationError, match=message):
        availability_figure(patterns, num_rounds)
