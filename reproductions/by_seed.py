"""Print the figures and claims of a reproduction's finished runs seed by seed, as Markdown.

    python reproductions/by_seed.py fedau/figure-1 runs/fedau-figure-1

Figures are the median and, in brackets, those of each seed in turn; a claim is told by the seeds of which it is true.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
from collections.abc import Mapping
from pathlib import Path

from turnout.comparison.folders import load_record, run_folders
from turnout.comparison.reproduction import Drawing, Outcome, Reproduction, load
from turnout.comparison.reproduction.declaration import Claim
from turnout.core.checks import CheckpointError, DataError
from turnout.reporting.measure import Measure
from turnout.reporting.records import RunRecord


def cell(figures: Mapping[int, float], measure: Measure) -> str:
    """Return one algorithm's figures: the median, and those of all seeds if there are several."""
    each = [
        f"{figures[seed]:,.0f}" if measure.metric is None else measure.number(figures[seed]) for seed in sorted(figures)
    ]
    middle = statistics.median_low(figures.values()) if len(figures) % 2 else statistics.median(figures.values())
    shown = "–" if not math.isfinite(middle) else f"{middle:,.1f}" if measure.metric is None else measure.number(middle)
    return shown if len(each) == 1 else f"{shown} ({', '.join(each)})"


def tables(outcome: Outcome) -> list[str]:
    """Return one table for each panel that was run."""
    measures, found = outcome.reproduction.measures, []
    for panel in outcome.panels:
        figures = [outcome.figures(panel, measure) for measure in measures]
        rows = [
            f"| {name} | {' | '.join(cell(own[name], m) for own, m in zip(figures, measures, strict=True))} |"
            for name in outcome.reproduction.of(panel)
            if figures[0][name]
        ]
        head = f"| {panel.title} | {' | '.join(measure.title for measure in measures)} |"
        found.append("\n".join([head, "|---|" + "---:|" * len(measures), *rows]))
    return found


def said(outcome: Outcome, claim: Claim) -> list[str]:
    """Return a line for each panel that a claim is about, or one for all that it compares."""
    measure = claim.measure or outcome.reproduction.measures[0]
    run = {panel.name: panel for panel in outcome.panels}
    names = claim.panels or tuple(run)
    wanted, across = [run[name] for name in names if name in run], claim.check.across
    if across and len(wanted) < len(names):
        return []
    lines = []
    for panels in [wanted] if across else [[panel] for panel in wanted]:
        figures = [outcome.figures(panel, measure) for panel in panels]
        shared = [set(each.get(name, {})) for each in figures for name in claim.check.algorithms]
        seeds = sorted(set.intersection(*shared)) if shared else []
        truths = claim.check.truths(figures, measure) if seeds else []
        true = [str(seed) for seed, truth in zip(seeds, truths, strict=True) if truth]
        if seeds:
            where = ", ".join(panel.title for panel in panels)
            lines.append(f"- {claim.text} ({where}): true of {len(true)} of {len(seeds)} ({', '.join(true) or 'none'})")
    return lines


def finished(folder: Path) -> list[RunRecord]:
    """Return the runs of a panel that are done, without those that are not."""
    found: list[RunRecord] = []
    try:
        paths = run_folders([folder])
    except DataError:  # no run at all
        return found
    for path in paths:
        with contextlib.suppress(CheckpointError):
            found.append(load_record(path))
    return found


def folders(reproduction: Reproduction, folder: Path) -> dict[str, Path]:
    """Return where the runs of each panel are: in a folder of its name, or of a single panel in the folder itself."""
    names = list(reproduction.panels)
    if len(names) == 1:
        return {names[0]: folder}
    return {name: folder / name for name in names if (folder / name).is_dir()}


def main() -> None:
    """Read the runs of every panel in the folder, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the reproduction: fedau/figure-1, or a TOML file")
    parser.add_argument("folder", type=Path, help="where turnout reproduce put its runs")
    given = parser.parse_args()
    reproduction = load(given.name, Path(__file__).parent)
    if isinstance(reproduction, Drawing):
        parser.error(f"{given.name} is drawn without runs")
    records = {name: finished(folder) for name, folder in folders(reproduction, given.folder).items()}
    if not any(records.values()):
        parser.error(f"{given.folder} holds no finished run of {given.name}: write the folder of turnout reproduce")
    outcome = Outcome(reproduction, {name: found for name, found in records.items() if found})
    print("\n\n".join(tables(outcome)))
    print("\n" + "\n".join(line for claim in reproduction.claims for line in said(outcome, claim)))


if __name__ == "__main__":
    main()
