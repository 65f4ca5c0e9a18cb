"""Compare the runs of a reproduction with the paper: figures side by side, and a verdict on each claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnout.results.measure import Measure, Target, accuracy_target
from turnout.results.records import RunRecord
from turnout.results.significance import FEWEST
from turnout.results.statistics import LEVEL, Gap, Quartiles, holm, number
from turnout.workbench.reproduction.checks import Figures
from turnout.workbench.reproduction.declaration import Claim, Panel, Reproduction
from turnout.workbench.reproduction.testing import paired_test

HOLDS, DOES_NOT_HOLD, UNDECIDED, NOT_RUN = "holds", "does not hold", "undecided", "not run"

Values = Mapping[str, Mapping[str, Figures]]
"""Figures by panel, measure, algorithm and seed."""


@dataclass(frozen=True)
class Finding:
    """The verdict on one claim, in one panel or between several.

    Attributes:
        claim: claim in words.
        panels: their titles.
        verdict: ``"holds"``, ``"does not hold"``, ``"undecided"`` or ``"not run"``.
        reason: the number of seeds, and the margin with its 95 % confidence interval; or what was not run.
        seeds: number of seeds.
        p: p-value by Holm's method over the claims of the table; None if there is none.
    """

    claim: str
    panels: tuple[str, ...]
    verdict: str
    reason: str
    seeds: int = 0
    p: float | None = None


@dataclass(frozen=True)
class _Question:
    """A claim in one panel or between several, with its figures by panel, or what was not run."""

    claim: Claim
    panels: Sequence[Panel]
    measure: Measure
    figures: Sequence[Figures] = ()
    missing: tuple[str, ...] = ()
    test: Gap | None = None


@dataclass(frozen=True)
class Line:
    """One algorithm in one panel: the paper's figures and ours, by measure.

    Attributes:
        panel, algorithm: panel and algorithm of the figures.
        paper: the declared figures of the paper, of measures that it has.
        ours: quartiles over our seeds, of measures with finished runs.
    """

    panel: Panel
    algorithm: str
    paper: Mapping[Measure, Any]
    ours: Mapping[Measure, Quartiles]

    @property
    def seeds(self) -> int:
        """The number of finished runs."""
        return max((ours.num for ours in self.ours.values()), default=0)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The finished runs of a reproduction, or figures that were recorded or computed without runs.

    Attributes:
        reproduction: the declaration.
        records: finished runs by the name of their panel; without runs, no records by the name of each panel.
        changes: differences from the declaration, such as fewer seeds or other settings.
        values: the figures; None computes them from the runs.
    """

    reproduction: Reproduction
    records: Mapping[str, Sequence[RunRecord]]
    changes: tuple[str, ...] = ()
    values: Values | None = None

    @property
    def panels(self) -> list[Panel]:
        """The panels that were run."""
        return [panel for name, panel in self.reproduction.panels.items() if name in self.records]

    def target(self, panel: Panel) -> Target | None:
        """Return the target of a panel; None if it has none."""
        records = self.records[panel.name]
        return None if panel.to_accuracy is None or not records else accuracy_target(records, panel.to_accuracy)

    def figures(self, panel: Panel, measure: Measure) -> Figures:
        """Return the figure of each algorithm and seed."""
        if self.values is not None:
            table = self.values[panel.name].get(str(measure), {})
            return {name: table.get(name, {}) for name in self.reproduction.of(panel)}
        records, target = self.records[panel.name], self.target(panel)
        figures: dict[str, dict[int, float]] = {name: {} for name in self.reproduction.of(panel)}
        for record in records:
            figures[record.algorithm][record.seed] = measure.of(record, target)
        return figures

    def lines(self) -> list[Line]:
        """Return the lines of the table, one for each algorithm in each panel."""
        measures, lines = self.reproduction.measures, []
        for panel in self.panels:
            figures = {measure: self.figures(panel, measure) for measure in measures}
            for name in self.reproduction.of(panel):
                ours = {measure: Quartiles.over(list(of[name].values())) for measure, of in figures.items() if of[name]}
                paper = dict(zip(measures, panel.paper.get(name, ()), strict=False))
                lines.append(Line(panel, name, paper, ours))
        return lines

    def findings(self) -> list[Finding]:
        """Return the verdict on every claim, in every panel that it concerns."""
        questions = [each for claim in self.reproduction.claims for each in self._of(claim)]
        tests = [each.test for each in questions]
        adjusted = holm([math.nan if test is None else test.p for test in tests])
        return [self._finding(question, p) for question, p in zip(questions, adjusted, strict=True)]

    def _of(self, claim: Claim) -> list[_Question]:
        measure = claim.measure or self.reproduction.measures[0]
        names = claim.panels or tuple(self.reproduction.panels)
        panels = [self.reproduction.panels[name] for name in names]
        if claim.check.across:
            return [self._question(claim, panels, measure)]
        concerned = [panel for panel in panels if panel.name in self.records and self._concerns(claim, panel)]
        return [self._question(claim, [panel], measure) for panel in concerned]

    def _question(self, claim: Claim, panels: Sequence[Panel], measure: Measure) -> _Question:
        """Return the question of a claim in these panels, with what was not run of them."""
        run = {name for panel in panels for name in self.reproduction.of(panel)}
        missing = [panel.title for panel in panels if panel.name not in self.records]
        missing += [name for name in claim.check.algorithms if name not in run]
        if missing:
            return _Question(claim, panels, measure, missing=tuple(missing))
        figures = [self.figures(panel, measure) for panel in panels]
        missing = [name for name in claim.check.algorithms if not all(each.get(name) for each in figures)]
        test = None if missing else paired_test(claim.check, figures, measure)
        return _Question(claim, panels, measure, figures, tuple(missing), test)

    def _finding(self, question: _Question, p: float) -> Finding:
        claim, titles = question.claim, tuple(panel.title for panel in question.panels)
        if question.missing:
            return Finding(claim.text, titles, NOT_RUN, f"not run: {', '.join(question.missing)}")
        truths = claim.check.truths(question.figures, question.measure)
        result, reason = verdict(truths, question.test, p, question.measure.scale if claim.check.of_figures else 1.0)
        reasons = [reason, claim.check.detail(question.figures)]
        shown = None if math.isnan(p) else p
        return Finding(claim.text, titles, result, "; ".join(filter(None, reasons)), len(truths), shown)

    def as_plain(self) -> dict[str, Any]:
        """Return the outcome as plain values for JSON, in which an infinite figure is None.

        ``values`` has the figures of single seeds by panel, measure and algorithm, which `read_outcome` in `tabulated` reads.
        """
        reproduction = self.reproduction
        return {
            "reproduction": reproduction.name,
            "title": reproduction.title,
            "reference": reproduction.reference,
            "changes": list(self.changes),
            "findings": [
                {
                    "claim": f.claim,
                    "panels": list(f.panels),
                    "verdict": f.verdict,
                    "reason": f.reason,
                    "p": rounded(f.p),
                }
                for f in self.findings()
            ],
            "figures": [
                {
                    "panel": line.panel.name,
                    "algorithm": line.algorithm,
                    "seeds": line.seeds,
                    "measures": [
                        {"measure": str(measure), "paper": line.paper.get(measure), **_plain(ours)}
                        for measure, ours in line.ours.items()
                    ],
                }
                for line in self.lines()
            ],
            "values": {panel.name: self._values(panel) for panel in self.panels},
        }

    def _values(self, panel: Panel) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return the figures of a panel by measure, algorithm and seed, including the measures of claims."""
        claimed = (claim.measure for claim in self.reproduction.claims if self._concerns(claim, panel))
        measures = dict.fromkeys([*self.reproduction.measures, *(measure for measure in claimed if measure)])
        return {
            str(measure): {
                name: {str(seed): finite(value) for seed, value in sorted(values.items())}
                for name, values in self.figures(panel, measure).items()
                if values
            }
            for measure in measures
        }

    def _concerns(self, claim: Claim, panel: Panel) -> bool:
        named = claim.panels is None or panel.name in claim.panels
        return named and set(claim.check.algorithms) <= set(self.reproduction.of(panel))


def verdict(truths: Sequence[bool | None], test: Gap | None, p: float, scale: float = 1.0) -> tuple[str, str]:
    """Return the verdict over all seeds, and its reason.

    Args:
        truths: whether the claim is true, for every seed.
        test: the test of its margins.
        p: p-value of the test, adjusted for the other claims.
        scale: what margins are multiplied by in the reason.
    """
    total, true, unknown = len(truths), truths.count(True), truths.count(None)
    count = f"true of {true} of {total} seed{'s' * (total != 1)}" + (f", {unknown} unknown" if unknown else "")
    if total - unknown < FEWEST:
        return UNDECIDED, f"{count}, at least {FEWEST} are needed"
    if test is None:
        return UNDECIDED, f"{count}, without a difference"
    spread = "" if test.margin is None else f" ± {number(scale * test.margin)}"
    is_finite = math.isfinite(test.mean)
    margin = f"margin {_signed(scale * test.mean)}{spread}" if is_finite else "one side never arrived"
    verdict = (HOLDS if test.mean > 0.0 else DOES_NOT_HOLD) if p < LEVEL else UNDECIDED
    return verdict, f"{count}, {margin}"


def rounded(p: float | None) -> float | None:
    """Return a p-value with three significant digits, which are the same on other processors."""
    return None if p is None else float(f"{p:.3g}")


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def _plain(ours: Quartiles) -> dict[str, Any]:
    figures = {"low": ours.low, "median": ours.median, "high": ours.high}
    return {**{name: finite(value) for name, value in figures.items()}, "reached": ours.num_finite}


def finite(value: float) -> float | None:
    """Return a figure for JSON, which has no infinite numbers: None in place of one."""
    return value if math.isfinite(value) else None
