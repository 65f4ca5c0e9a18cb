"""A picture of who gains from being slow: the influence of a client that throttles itself, under each rule of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import count
from turnout.reporting.style import INK, SIZE, dress, legend, looks_of, new_figure
from turnout.theory.throttling import RULES, by_formula, by_simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEEDS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Reported speeds, as fractions of the client's own, at which schedules are simulated."""


def throttling_figure(steps: int = 1000, seeds: Sequence[int] = (0,), speeds: Sequence[float] = SPEEDS) -> Figure:
    """Draw the utility of one fast client against the speed it reports; it gains from lying where a line rises to the left.

    Lines are formulas for memoryless clients, dots means over schedules in virtual time, one for each seed: on the left of
    such clients, on the right of clients whose tasks take about the same time each, as in the paper's experiments. The
    dashed line is the fair share, which the weights of equation (8) give at every speed before they are normalised.
    """
    count("steps", steps, least=10)
    figure, looks = new_figure(2 * SIZE[0], 1.2 * SIZE[1]), looks_of(RULES)
    places = np.linspace(min(speeds), 1.0, 40)
    formulas = by_formula(places.tolist())
    for axes, memoryless in zip(figure.subplots(1, 2, sharey=True), (True, False), strict=True):
        dots = by_simulation(speeds, memoryless=memoryless, steps=steps, seeds=seeds)
        for name, rule in RULES.items():
            if memoryless or rule.by_mean:
                axes.plot(100 * places, formulas[name], linewidth=1.6, **looks[name])
            else:  # of these the formula needs how staleness is distributed, and has it for memoryless clients only
                axes.plot([100 * each for each in speeds], dots[name], linewidth=1, alpha=0.6, **looks[name])
            axes.plot([100 * each for each in speeds], dots[name], "o", markersize=4, color=looks[name]["color"])
        axes.axhline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        title = "tasks of any length (exponential)" if memoryless else "tasks of similar length (uniform)"
        dress(axes, "reported speed (% of its own)", "influence (fair share = 1)", title=title)
        axes.label_outer()
    legend(figure, looks)
    return figure
