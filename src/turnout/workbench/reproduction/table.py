"""Format the figures of a reproduction, with the paper's beside ours, and its findings as tables, and write its HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from turnout.reporting.page import Drawing, draw, environment, render_page, settings, write_page
from turnout.reporting.style import keys_of, looks_of
from turnout.results.formats import csv_of
from turnout.results.measure import Measure
from turnout.results.names import name_of
from turnout.results.significance import FEWEST
from turnout.results.terminal import TextTable
from turnout.workbench.reproduction.declaration import Curve
from turnout.workbench.reproduction.outcome import DOES_NOT_HOLD, HOLDS, NOT_RUN, UNDECIDED, Finding, Line, Outcome
from turnout.workbench.reproduction.pictures import curve_figure, measure_figure

STYLES = {HOLDS: "green", DOES_NOT_HOLD: "red", UNDECIDED: "yellow", NOT_RUN: "dim"}


def titles(outcome: Outcome) -> list[str]:
    """Return the titles of the columns after panel and algorithm: for every measure the paper's figure, if any, and ours."""
    several = len(outcome.reproduction.measures) > 1
    columns = []
    for measure in outcome.reproduction.measures:
        name = measure.title
        if has_paper(outcome, measure):
            columns.append(f"{name}, paper" if several else "paper")
        columns.append(f"{name}, ours" if has_paper(outcome, measure) else name)
    return [*columns, "reached by"] if reaches(outcome) else [*columns, "seeds"]


def cells(outcome: Outcome, line: Line) -> list[str]:
    """Return the texts of these columns for one algorithm in one panel."""
    texts = []
    for measure in outcome.reproduction.measures:
        if has_paper(outcome, measure):
            texts.append(written(line.paper.get(measure)))
        texts.append(measure.shown(line.ours[measure]) if measure in line.ours else "–")
    if not reaches(outcome):
        return [*texts, str(line.seeds)]
    figure = next((figure for measure, figure in line.ours.items() if measure.metric is None), None)
    return [*texts, f"{figure.num_finite}/{figure.num}" if figure else "0/0"]


def written(paper: Any) -> str:
    """Return a declared figure of the paper as text."""
    return "–" if paper is None else f"{paper:,}" if isinstance(paper, int) else str(paper)


def has_paper(outcome: Outcome, measure: Measure) -> bool:
    """Return whether the paper has a figure for a measure."""
    index = outcome.reproduction.measures.index(measure)
    return any(len(figures) > index for panel in outcome.panels for figures in panel.paper.values())


def reaches(outcome: Outcome) -> bool:
    """Return whether a measure counts until a target is reached."""
    return any(measure.metric is None for measure in outcome.reproduction.measures)


def rich_table(outcome: Outcome) -> TextTable:
    """Return the figures for a terminal."""
    rows, sections, before = [], [], None
    for line in outcome.lines():
        begins = line.panel is not before
        if begins and rows:
            sections.append(len(rows))
        texts = [line.panel.titled(reaches(outcome)) if begins else "", line.algorithm, *cells(outcome, line)]
        rows.append([(text, False) for text in texts])
        before = line.panel
    names = ["panel", "algorithm"]
    caption = "ours: median (quartiles) over seeds"
    return TextTable([*names, *titles(outcome)], rows, caption=caption, names=len(names), sections=sections)


def rich_findings(findings: Sequence[Finding]) -> Table:
    """Return the findings for a terminal."""
    finding, p = Column("finding", no_wrap=True), Column("p", no_wrap=True)
    table = Table("claim", "where", finding, "seeds", p, box=SIMPLE_HEAD)
    before = ""
    for finding in findings:
        claim = finding.claim if finding.claim != before else ""
        verdict = Text(finding.verdict, style=STYLES[finding.verdict])
        table.add_row(
            Text(claim), Text(", ".join(finding.panels)), verdict, Text(finding.reason), Text(shown(finding.p))
        )
        before = finding.claim
    return table


def shown(p: float | None) -> str:
    """Format a p-value."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def csv(outcome: Outcome) -> str:
    """Return all figures as CSV at full precision, a line per panel, algorithm and measure; ``inf`` where not reached."""
    rows = []
    for line in outcome.lines():
        for measure in outcome.reproduction.measures:
            ours = line.ours.get(measure)
            figures = (ours.low, ours.median, ours.high, ours.num_finite, ours.num) if ours else (None,) * 4 + (0,)
            rows.append([line.panel.name, line.algorithm, measure, line.paper.get(measure), *figures])
    titles = ("panel", "algorithm", "measure", "paper", "low", "median", "high", "reached", "seeds")
    return csv_of(titles, rows)


def write_outcome(outcome: Outcome, path: str | Path) -> Path:
    """Write the page atomically, and return its path.

    Raises:
        ConfigurationError: if matplotlib or Jinja2 is not installed.
        CheckpointError: if the file cannot be written.
    """
    reproduction, groups = outcome.reproduction, {}
    for line in outcome.lines():
        group = groups.setdefault(line.panel.name, (line.panel.titled(reaches(outcome)), []))
        group[1].append((line.algorithm, cells(outcome, line)))
    looks = looks_of(reproduction.algorithms)
    page = render_page(
        "reproduction.html",
        title=reproduction.title,
        lead=reproduction.reference,
        about=reproduction.about,
        changes=outcome.changes,
        findings=[(finding, shown(finding.p)) for finding in outcome.findings()],
        least_seeds=FEWEST,
        papers=any(has_paper(outcome, measure) for measure in reproduction.measures),
        titles=titles(outcome),
        groups=list(groups.values()),
        keys=keys_of(looks),
        reaches=reaches(outcome),
        measures=[_measure(outcome, measure) for measure in reproduction.measures],
        curves=[_curve(outcome, curve) for curve in reproduction.curves],
        settings=_settings(outcome),
        environment=environment(),
    )
    return write_page(path, page)


def _measure(outcome: Outcome, measure: Measure) -> Drawing:
    """Draw one measure, with the figures of the paper and ours."""
    diamonds = ", diamonds are the paper's figures" if has_paper(outcome, measure) else ""
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
