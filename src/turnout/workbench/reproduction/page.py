"""Write the HTML page of a reproduction: findings, the paper's figures beside ours, and plots."""

from __future__ import annotations

from pathlib import Path

from turnout.reporting.page import Drawing, draw, render_page, write_page
from turnout.reporting.settings import environment, settings
from turnout.reporting.style import keys_of, looks_of
from turnout.results.measure import Measure
from turnout.results.names import name_of
from turnout.results.significance import FEWEST
from turnout.workbench.reproduction import table
from turnout.workbench.reproduction.declaration import Curve
from turnout.workbench.reproduction.outcome import Outcome
from turnout.workbench.reproduction.pictures import curve_figure, measure_figure


def write_outcome(outcome: Outcome, path: str | Path) -> Path:
    """Write the page atomically, and return its path.

    Raises:
        ConfigurationError: if matplotlib or Jinja2 is not installed.
        CheckpointError: if the file cannot be written.
    """
    reproduction, groups = outcome.reproduction, {}
    for line in outcome.lines():
        group = groups.setdefault(line.panel.name, (line.panel.titled(table.reaches(outcome)), []))
        group[1].append((line.algorithm, table.cells(outcome, line)))
    looks = looks_of(reproduction.algorithms)
    page = render_page(
        "reproduction.html",
        title=reproduction.title,
        lead=reproduction.reference,
        about=reproduction.about,
        changes=outcome.changes,
        findings=[(finding, table.shown(finding.p)) for finding in outcome.findings()],
        least_seeds=FEWEST,
        papers=any(table.has_paper(outcome, index) for index in range(len(reproduction.measures))),
        titles=table.titles(outcome),
        groups=list(groups.values()),
        keys=keys_of(looks),
        reaches=table.reaches(outcome),
        measures=[_measure(outcome, measure) for measure in reproduction.measures],
        curves=[_curve(outcome, curve) for curve in reproduction.curves],
        settings=_settings(outcome),
        environment=environment(),
    )
    return write_page(path, page)


def _measure(outcome: Outcome, measure: Measure) -> Drawing:
    """Draw one measure, with the figures of the paper and ours."""
    index = outcome.reproduction.measures.index(measure)
    diamonds = ", diamonds are the paper's figures" if table.has_paper(outcome, index) else ""
    caption = f"Dots are our medians, lines go from quartile to quartile{diamonds}."
    if measure.metric is None:
        caption += " An arrow stands for seeds that did not get there."
    title = measure.title[0].upper() + measure.title[1:]
    alt = f"{title} of every algorithm in every panel, ours and the paper's."
    return draw(title, caption, alt, lambda: measure_figure(outcome, measure))


def _curve(outcome: Outcome, curve: Curve) -> Drawing:
    """Draw one column against rounds or costs."""
    against = {
        "rounds": "rounds",
        "bytes": "bytes sent",
        "bytes_up": "bytes that clients sent",
        "simulated_seconds": "simulated time",
    }[curve.against]
    title = f"{name_of(curve.metric).capitalize()} against {against}"
    caption = "Lines are medians over seeds, bands go from quartile to quartile."
    if not curve.band:
        caption = "The first seed."
    alt = f"{title}, one set of axes for each panel, one line for each algorithm."
    return draw(title, caption, alt, lambda: curve_figure(outcome, curve))


def _settings(outcome: Outcome) -> dict[str, str]:
    """Return the configurations of all panels."""
    texts = {}
    for panel in outcome.panels:
        if records := outcome.records[panel.name]:
            texts |= {f"{panel.title}: {part}": text for part, text in settings(records).items()}
    return texts
