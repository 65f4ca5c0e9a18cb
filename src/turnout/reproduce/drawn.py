"""Figures of papers that need no training: they are computed and drawn at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnout.reporting.mean_estimation_figure import appeal_figure, three_clients_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawn:
    """One figure.

    Attributes:
        title: what it shows, in a line.
        reference: the paper, and which figure of it.
        draw: makes it.
    """

    title: str
    reference: str
    draw: Callable[[], Figure]


DRAWN = {
    "maxfl/figure-5": Drawn(
        "Mean estimation with two clients: GM-Appeal against heterogeneity, and MaxFL's objective",
        "Cho et al., TMLR 2024, Figure 5",
        appeal_figure,
    ),
    "maxfl/figure-6": Drawn(
        "Mean estimation with three clients: MaxFL's objective and its minima",
        "Cho et al., TMLR 2024, Figure 6",
        three_clients_figure,
    ),
}
"""By name, as `turnout.reproduce.names` has those that run."""
