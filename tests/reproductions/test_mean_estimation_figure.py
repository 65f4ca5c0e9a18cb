"""The pictures show what `reproductions.maxfl.mean_estimation` computes."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from reproductions.maxfl.mean_estimation import (
    CASES,
    FARTHEST,
    appeal,
    appeal_figure,
    estimates,
    least_appeal_of_maxfl,
    most_appeal_of_averaging,
    three_clients_figure,
)

from turnout import ConfigurationError


def lines(axes):
    return [np.array(line.get_xydata()) for line in axes.get_lines()]


def test_appeal_and_its_bounds_against_heterogeneity():
    left, right = appeal_figure(runs=200, points=5, seed=3).axes
    maxfl, below, averaging, above = lines(left)
    assert maxfl[:, 0].tolist() == pytest.approx(np.linspace(0, FARTHEST, 5).tolist())
    means = (0.0, 2 * FARTHEST)
    assert maxfl[-1, 1] == appeal(means, estimates(means, 200, seed=3)).mean()
    assert averaging[0, 1] > 0.5
    assert averaging[-1, 1] < 0.05
    assert below[:, 1].tolist() == [least_appeal_of_maxfl()] * 5
    assert above[2, 1] == most_appeal_of_averaging(FARTHEST / 2)
    near, at_near, _, at_far = lines(right)
    assert len(at_near) == 1
    assert len(at_far) == 2
    assert at_near[0, 1] <= near[:, 1].min() + 1e-9


def test_three_clients_have_as_many_minima_as_groups():
    figure = three_clients_figure()
    assert [axes.get_title() for axes in figure.axes] == list(CASES)
    assert [len(lines(axes)[1]) for axes in figure.axes] == [1, 3, 2]
    assert lines(figure.axes[2])[2][0, 0] == pytest.approx(np.mean(CASES["two alike"]))


def test_curve_needs_two_points():
    with pytest.raises(ConfigurationError, match="points: got 1, needed a whole number >= 2"):
        appeal_figure(points=1)
