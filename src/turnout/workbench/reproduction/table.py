"""Format the figures of a reproduction, with the paper's beside ours, and its findings as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from turnout.results.formats import csv_of
from turnout.results.terminal import TextTable
from turnout.workbench.reproduction.outcome import DOES_NOT_HOLD, HOLDS, NOT_RUN, UNDECIDED, Finding, Line, Outcome

STYLES = {HOLDS: "green", DOES_NOT_HOLD: "red", UNDECIDED: "yellow", NOT_RUN: "dim"}


def titles(outcome: Outcome) -> list[str]:
    """Return the titles of the columns after panel and algorithm: for every measure the paper's figure, if any, and ours."""
    several = len(outcome.reproduction.measures) > 1
    columns = []
    for index, measure in enumerate(outcome.reproduction.measures):
        name = measure.title
        if has_paper(outcome, index):
            columns.append(f"{name}, paper" if several else "paper")
        columns.append(f"{name}, ours" if has_paper(outcome, index) else name)
    return [*columns, "reached by"] if reaches(outcome) else [*columns, "seeds"]


def cells(outcome: Outcome, line: Line) -> list[str]:
    """Return the texts of these columns for one algorithm in one panel."""
    texts = []
    for index, measure in enumerate(outcome.reproduction.measures):
        if has_paper(outcome, index):
            texts.append(written(line.paper[index]))
        texts.append(measure.shown(line.ours[index]) if line.ours else "–")
    if not reaches(outcome):
        return [*texts, str(line.seeds)]
    figure = next((f for f, m in zip(line.ours, outcome.reproduction.measures, strict=False) if m.metric is None), None)
    return [*texts, f"{figure.num_finite}/{figure.num}" if figure else "0/0"]


def written(paper: Any) -> str:
    """Return a declared figure of the paper as text."""
    return "–" if paper is None else f"{paper:,}" if isinstance(paper, int) else str(paper)


def has_paper(outcome: Outcome, index: int) -> bool:
    """Return whether the paper has a figure for a measure."""
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
        for index, measure in enumerate(outcome.reproduction.measures):
            ours = line.ours[index] if line.ours else None
            figures = (ours.low, ours.median, ours.high, ours.num_finite, ours.num) if ours else (None,) * 4 + (0,)
            rows.append([line.panel.name, line.algorithm, measure, line.paper[index], *figures])
    titles = ("panel", "algorithm", "measure", "paper", "low", "median", "high", "reached", "seeds")
    return csv_of(titles, rows)
