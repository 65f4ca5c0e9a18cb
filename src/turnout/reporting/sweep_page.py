"""The page of a sweep: the grid as a picture and a table, and how the best points got there."""

from __future__ import annotations

from pathlib import Path

from turnout.reporting import figures
from turnout.reporting.grid import Sweep, assignments, caption, written
from turnout.reporting.grid_figure import grid_figure
from turnout.reporting.page import Drawing, draw, render_page, write_page
from turnout.reporting.settings import environment, settings
from turnout.reporting.style import name_of

MOST_LINES = 5
"""Points whose curves are drawn."""


def write_sweep(sweep: Sweep, path: str | Path, title: str = "Sweep") -> Path:
    """Write the page, whole or not at all, and return its path.

    Raises:
        ConfigurationError: where matplotlib or Jinja2 is not installed, or no point has a finite figure.
        CheckpointError: where the file cannot be written.
    """
    best = sweep.best_point
    alt = f"{sweep.measure.title} of every point of the grid over {' and '.join(sweep.axes)}."
    page = render_page(
        "sweep.html",
        title=title,
        lead=f"Best by {sweep.measure.title}: {assignments(sweep.best)}, {sweep.scores[best].text}. {edge_note(sweep)}",
        map=draw(f"{sweep.measure.title} over the grid", "The best point is ringed.", alt, lambda: grid_figure(sweep)),
        titles=[*sweep.axes, sweep.measure.title],
        lines=[
            ([written(value) for value in point.values()], sweep.scores[name].text, name == best)
            for name, point in sweep.points.items()
            if name in sweep.scores
        ],
        caption=caption(sweep),
        curves=[_curve(sweep, metric) for metric in ("test_accuracy", "train_loss")],
        settings=settings(sweep.records[best]),
        environment=environment(),
    )
    return write_page(path, page)


def edge_note(sweep: Sweep) -> str:
    """Return a warning where the best value of an axis is its least or greatest; empty otherwise."""
    edges = sweep.at_the_edge
    if not edges:
        return ""
    return f"The best of {' and '.join(edges)} is at the edge of the grid: a wider one may have a better."


def _curve(sweep: Sweep, metric: str) -> Drawing:
    """Return a column on the way, for the best points."""
    records = [record for name in sweep.ranking[:MOST_LINES] for record in sweep.records[name]]
    title = name_of(metric).capitalize()
    alt = f"{title} against rounds, for the best points of the grid."
    return draw(title, "", alt, lambda: figures.curves(records, metric, smooth=True))
