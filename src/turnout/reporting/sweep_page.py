"""Write the HTML page of a sweep: a plot and a table of the points, and curves of the best ones."""

from __future__ import annotations

from pathlib import Path

from turnout.record.schema import is_of_test_examples
from turnout.reporting.curves import curves
from turnout.reporting.grid_figure import grid_figure, search_figure
from turnout.reporting.page import Drawing, draw, environment, render_page, settings, write_page
from turnout.results.grid import Search, Sweep, assignments, caption, cells, titles
from turnout.results.measure import accuracy_target
from turnout.results.names import name_of

MOST_LINES = 5
"""The number of points whose curves are plotted."""


def write_sweep(sweep: Sweep, path: str | Path, title: str = "Sweep") -> Path:
    """Write the page atomically, and return its path.

    Raises:
        ConfigurationError: if matplotlib or Jinja2 is not installed, or no point has a finite figure.
        CheckpointError: if the file cannot be written.
    """
    best = sweep.best_point
    page = render_page(
        "sweep.html",
        title=title,
        heading="Every trial" if isinstance(sweep, Search) else "Every point of the grid",
        lead=f"Best by {sweep.measure.title}: {assignments(sweep.best)}, {sweep.scores[best].text}. {edge_note(sweep)}",
        biased=test_note(sweep),
        map=_map(sweep),
        titles=titles(sweep),
        lines=[
            (cells(sweep, name), sweep.scores[name].text, name == best) for name in sweep.points if name in sweep.scores
        ],
        caption=caption(sweep),
        curves=[_curve(sweep, metric) for metric in ("test_accuracy", "train_loss")],
        settings=settings(sweep.records[best]),
        environment=environment(),
    )
    return write_page(path, page)


def test_note(sweep: Sweep) -> str:
    """Return a warning if figures of test examples chose the best point; empty otherwise."""
    metric = sweep.measure.metric
    if metric is None and sweep.to_accuracy is not None:
        metric = accuracy_target(sweep.all_records, sweep.to_accuracy).metric
    if metric is None or not is_of_test_examples(metric):
        return ""
    return (
        f"The best was chosen by test examples ({name_of(metric)}), so figures of test examples are biased: hold out "
        "validation examples (validation_fraction=0.1 in split, or data.validation_fraction=0.1), which choose by default."
    )


def edge_note(sweep: Sweep) -> str:
    """Return a warning if the best value of an axis is its least or greatest; empty otherwise."""
    edges = sweep.at_the_edge
    if not edges:
        return ""
    what = "range" if isinstance(sweep, Search) else "grid"
    return f"The best {' and '.join(edges)} is at the edge of the {what}: a wider {what} may contain a better value."


def _map(sweep: Sweep) -> Drawing:
    """Plot the figures of all points."""
    measured, over = sweep.measure.title, " and ".join(sweep.axes)
    if isinstance(sweep, Search):
        alt = f"{measured} of every trial, against its number and against {over}."
        return draw(f"{measured} of all trials", "The best trial is ringed.", alt, lambda: search_figure(sweep))
    alt = f"{measured} of every point of the grid over {over}."
    return draw(f"{measured} over the grid", "The best point is ringed.", alt, lambda: grid_figure(sweep))


def _curve(sweep: Sweep, metric: str) -> Drawing:
    """Plot a column against rounds for the best points."""
    records = [record for name in sweep.ranking[:MOST_LINES] for record in sweep.records[name]]
    title = name_of(metric).capitalize()
    alt = f"{title} against rounds, for the best points."
    return draw(title, "", alt, lambda: curves(records, metric, smooth=True))
