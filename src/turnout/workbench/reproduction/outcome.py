"""Compare the runs of a reproduction with the paper: figures side by side, and a verdict on each claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turnout.results.measure import Measure
from turnout.results.records import RunRecord
from turnout.results.statistics import Quartiles
from turnout.results.target import Target, accuracy_target
from turnout.workbench.reproduction.checks import Figures
from turnout.workbench.reproduction.declaration import Claim, Panel, Reproduction

Values = Mapping[str, Mapping[str, Figures]]
"""Figures by panel, measure, algorithm and seed."""

LEAST_SEEDS = 3
"""The least number of seeds with which a claim is decided."""

LEAST_SHARE = 0.75
"""The share of the seeds that have to agree on a verdict."""


@dataclass(frozen=True)
class Finding:
    """The verdict on one claim, in one panel or between several.

    Attributes:
        claim: claim in words.
        panels: their titles.
        verdict: ``"holds"``, ``"does not hold"`` or ``"undecided"``.
        reason: the number of seeds, and the reason of an undecided verdict.
    """

    claim: str
    panels: tuple[str, ...]
    verdict: str
    reason: str


@dataclass(frozen=True)
class Line:
    """One algorithm in one panel: the paper's figures and ours, by measure.

    Attributes:
        panel, algorithm: panel and algorithm of the figures.
        paper: the declared figures of the paper; None if it has none.
        ours: quartiles over our seeds; empty if no run is finished.
    """

    panel: Panel
    algorithm: str
    paper: tuple[Any, ...]
    ours: tuple[Quartiles, ...]

    @property
    def seeds(self) -> int:
        """The number of finished runs."""
        return self.ours[0].num if self.ours else 0


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
            by_measure = [self.figures(panel, measure) for measure in measures]
            for name in self.reproduction.of(panel):
                ours = [Quartiles.over(list(figures[name].values())) for figures in by_measure if figures[name]]
                paper = panel.paper.get(name, ())
                paper += (None,) * (len(measures) - len(paper))
                lines.append(Line(panel, name, paper, tuple(ours)))
        return lines

    def findings(self) -> list[Finding]:
        """Return the verdict on every claim, in every panel that it concerns."""
        return [finding for claim in self.reproduction.claims for finding in self._of(claim)]

    def _of(self, claim: Claim) -> list[Finding]:
        measure = claim.measure or self.reproduction.measures[0]
        names = claim.panels or tuple(self.reproduction.panels)
        panels = [self.reproduction.panels[name] for name in names]
        if claim.check.across:
            return [self._across(claim, panels, measure)]
        complete = [panel for panel in panels if set(claim.check.algorithms) <= set(self.reproduction.of(panel))]
        return [self._finding(claim, [panel], measure) for panel in complete if panel.name in self.records]

    def _across(self, claim: Claim, panels: Sequence[Panel], measure: Measure) -> Finding:
        """Return the verdict on a claim that compares panels."""
        run = {name for panel in panels for name in self.reproduction.of(panel)}
        missing = [panel.title for panel in panels if panel.name not in self.records]
        if missing := [*missing, *(name for name in claim.check.algorithms if name not in run)]:
            titles = tuple(panel.title for panel in panels)
            return Finding(claim.text, titles, "undecided", f"not run: {', '.join(missing)}")
        return self._finding(claim, panels, measure)

    def _finding(self, claim: Claim, panels: Sequence[Panel], measure: Measure) -> Finding:
        figures = [self.figures(panel, measure) for panel in panels]
        result, reason = verdict(claim.check.truths(figures, measure))
        reasons = [reason, claim.check.detail(figures)]
        return Finding(claim.text, tuple(panel.title for panel in panels), result, "; ".join(filter(None, reasons)))

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
                {"claim": f.claim, "panels": list(f.panels), "verdict": f.verdict, "reason": f.reason}
                for f in self.findings()
            ],
            "figures": [
                {
                    "panel": line.panel.name,
                    "algorithm": line.algorithm,
                    "seeds": line.seeds,
                    "measures": [
                        {"measure": str(measure), "paper": paper, **_plain(ours)}
                        for measure, paper, ours in zip(reproduction.measures, line.paper, line.ours, strict=False)
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


def verdict(truths: Sequence[bool | None]) -> tuple[str, str]:
    """Return the verdict over all seeds, and its reason."""
    total, true, unknown = len(truths), truths.count(True), truths.count(None)
    count = f"true of {true} of {total} seed{'s' * (total != 1)}"
    if total < LEAST_SEEDS:
        return "undecided", f"{count}, at least {LEAST_SEEDS} are needed"
    if true >= LEAST_SHARE * total:
        return "holds", count
    if total - true - unknown >= LEAST_SHARE * total:
        return "does not hold", count
    return "undecided", f"{count}, {unknown} undecided" if unknown else f"the spread overlaps, {count}"


def _plain(ours: Quartiles) -> dict[str, Any]:
    figures = {"low": ours.low, "median": ours.median, "high": ours.high}
    return {**{name: finite(value) for name, value in figures.items()}, "reached": ours.num_finite}


def finite(value: float) -> float | None:
    """Return a figure for JSON, which has no infinite numbers: None in place of one."""
    return value if math.isfinite(value) else None
