"""The picture shows what `reproductions.fedstaleweight.throttling` computes."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from reproductions.fedstaleweight.throttling import RULES, by_formula, by_simulation, throttling_figure

from turnout import ConfigurationError


def test_formulas_are_lines_and_schedules_dots():
    left, right = throttling_figure(steps=40, seeds=(3,), speeds=(0.5, 1.0)).axes
    for axes, memoryless in ((left, True), (right, False)):
        lines = [np.array(line.get_xydata()) for line in axes.get_lines()]
        pairs = dict(zip(RULES, zip(lines[:-1:2], lines[1:-1:2], strict=True), strict=True))
        dots = by_simulation((0.5, 1.0), memoryless=memoryless, steps=40, seeds=(3,))
        formula = by_formula([0.5, 1.0])
        for name, (line, dot) in pairs.items():
            assert dot[:, 0].tolist() == [50, 100]
            assert dot[:, 1].tolist() == dots[name].tolist()
            expected = formula if memoryless or RULES[name].by_mean else dots
            assert line[[0, -1], 1] == pytest.approx(expected[name])
        assert lines[-1][:, 1].tolist() == [1.0, 1.0]


def test_schedule_has_steps_that_count():
    with pytest.raises(ConfigurationError, match="steps: got 3, needed a whole number >= 10"):
        throttling_figure(steps=3)
