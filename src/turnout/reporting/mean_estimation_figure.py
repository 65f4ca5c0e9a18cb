"""Pictures of mean estimation by MaxFL: who is content, how far apart clients are, and where the minima lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnout.core.checks import count
from turnout.reporting.style import INK, SIZE, dress, legend, looks_of, new_figure
from turnout.theory.mean_estimation import (
    METHODS,
    appeal,
    estimates,
    least_appeal_of_maxfl,
    minima,
    most_appeal_of_averaging,
    objective,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FARTHEST = 20**0.5
"""The largest gamma_G of the paper's figure 5 (a)."""

CASES = {
    "alike": (0.2, 0.0, -0.2),
    "all different": (-4.0, 1.0, 4.5),
    "two alike": (-2.2, -1.8, 3.0),
}
"""Estimates of three clients, as in the paper's figure 6."""


def appeal_figure(runs: int = 10_000, points: int = 23, seed: int = 0) -> Figure:
    """GM-Appeal of two clients against their heterogeneity, and MaxFL's objective for near and far ones (figure 5).

    On the left means over runs, and the bounds of lemma A.1 and theorem A.1 (dashed, in the colour of what they bound). On
    the right the dots are minima. MaxFL with a convex function in place of the sigmoid ends where averaging does (lemma A.2).
    """
    count("points", points, least=2)
    figure, looks = new_figure(2 * SIZE[0]), looks_of(METHODS)
    left, right = figure.subplots(1, 2)
    at = np.linspace(0.0, FARTHEST, points)
    bounds = {"maxfl": lambda _: least_appeal_of_maxfl(), "fedavg": most_appeal_of_averaging}
    for method in METHODS:
        found = [appeal((0.0, 2 * g), estimates((0.0, 2 * g), runs, seed=seed), method).mean() for g in at]
        left.plot(at, found, linewidth=1.6, **looks[method])
        bound = [bounds[method](g) for g in at]
        left.plot(at, bound, linewidth=1, color=looks[method]["color"], linestyle=(0, (4, 3)))
    left.set_ylim(0.0, 1.0)
    dress(left, "half the distance of the true means", "GM-Appeal")
    for half, alpha in ((0.5, 0.5), (2.5, 1.0)):
        _objective(right, (-half, half), looks["maxfl"]["color"], alpha)
    dress(right, "model", "MaxFL's objective", title="near (faint) and far apart")
    legend(figure, looks)
    return figure


def three_clients_figure() -> Figure:
    """MaxFL's objective for three clients who are alike, all different, or two of them alike (figure 6).

    Dots are minima; the dashed line is where averaging ends, and the ticks on the axis are the clients' estimates.
    """
    figure, looks = new_figure(2 * SIZE[0]), looks_of(METHODS)
    for axes, (name, estimated) in zip(figure.subplots(1, len(CASES), sharey=True), CASES.items(), strict=True):
        _objective(axes, estimated, looks["maxfl"]["color"])
        axes.axvline(float(np.mean(estimated)), color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot(
            estimated, np.zeros(len(estimated)), "|", color=INK, markersize=9, transform=axes.get_xaxis_transform()
        )
        dress(axes, "model", "MaxFL's objective", title=name)
        axes.label_outer()
    return figure


def _objective(axes: Axes, estimated: Sequence[float], colour: str, alpha: float = 1.0) -> None:
    """Draw the objective's curve and its minima."""
    places = np.array(estimated)
    w = np.linspace(places.min() - 2.5, places.max() + 2.5, 600)
    axes.plot(w, objective(w, places), linewidth=1.6, color=colour, alpha=alpha)
    low = np.unique((places + minima(places[None])[0]).round(6))
    axes.plot(low, objective(low, places), "o", markersize=6, color=colour, alpha=alpha)
