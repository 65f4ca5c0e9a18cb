"""Record finished reproductions beside their READMEs, and write what READMEs and the page of claims say about them.

    python scripts/reproductions.py keep runs/fedau-digits                      # fedau/digits.findings.json, .results.csv
    python scripts/reproductions.py keep runs/folb-steps --label steps          # folb/table-1.steps.findings.json, ...
    python scripts/reproductions.py keep runs/robust-grid --picture measure     # and robust/grid.png
    python scripts/reproductions.py write                                       # every README, and reproductions/README.md
    python scripts/reproductions.py outdated                                    # artifacts of other sources than today's

A README shows an artifact between ``<!-- artifact: fedau/digits -->`` and ``<!-- end -->``. Verdicts are computed from the
artifacts with the checks of today's declarations; ``reproductions/papers.toml`` lists the tables and figures of the papers.
"""

from __future__ import annotations

import argparse
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.comparison.folders import load_records
from turnout.core.checks import counted
from turnout.record.environment import hash_of
from turnout.results.measure import Measure
from turnout.results.statistics import Quartiles
from turnout.workbench.reproduction.declaration import Claim, Reproduction
from turnout.workbench.reproduction.outcome import DOES_NOT_HOLD, HOLDS, NOT_RUN, UNDECIDED, Finding, Outcome
from turnout.workbench.reproduction.pictures import curve_figure, measure_figure
from turnout.workbench.reproduction.reading import read
from turnout.workbench.reproduction.table import cells, csv, reaches, titles
from turnout.workbench.reproduction.table import shown as shown_p
from turnout.workbench.reproduction.tabulated import read_outcome

FOLDER = Path(__file__).resolve().parents[1] / "reproductions"
MARKED = re.compile(r"(<!-- artifact: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
PART = "holds in part"
VERDICTS = (HOLDS, PART, DOES_NOT_HOLD, UNDECIDED, NOT_RUN)


@dataclass(frozen=True)
class Artifact:
    """Recorded figures of one command.

    Attributes:
        name: ``"folb/table-1"``, or with a label ``"folb/table-1.steps"``.
        run: the command, its version and commit, rounds and seconds.
        outcome: figures and findings.
    """

    name: str
    run: dict[str, Any]
    outcome: Outcome

    @classmethod
    def read(cls, name: str) -> Artifact:
        """Return the artifact of that name."""
        path = FOLDER / f"{name}.findings.json"
        run = json.loads(path.read_text(encoding="utf-8"))["run"]
        return cls(name, run, read_outcome(declared(name.partition(".")[0]), path))

    @property
    def size(self) -> str:
        """Rounds and seeds."""
        seeds = {
            seed
            for panel in (self.outcome.values or {}).values()
            for table in panel.values()
            for f in table.values()
            for seed in f
        }
        size = [f"{', '.join(map(str, self.run['rounds']))} rounds"] if self.run["rounds"] else []
        return ", ".join([*size, counted(len(seeds), "seed")])

    @property
    def how(self) -> str:
        """Return command, size, time and version in a line."""
        seconds = self.run["seconds"]
        time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
        version = f"turnout {self.run['turnout']} at {self.run['commit'][:10]}"
        on = "on a GPU" if "--device cuda" in self.run["command"] else "of one core"
        return f"`{self.run['command']}` ({self.size}, {time} {on}, {version})"


def declared(name: str) -> Reproduction:
    """Return the declaration of that name: panels, measures and claims."""
    return read(FOLDER / f"{name}.toml", name)


def artifacts(name: str) -> list[Artifact]:
    """Return the artifacts of a declaration."""
    paths = sorted((FOLDER / name).parent.glob(f"{Path(name).name}*.findings.json"))
    stems = [path.name.removesuffix(".findings.json") for path in paths]
    return [Artifact.read(f"{Path(name).parent}/{stem}") for stem in stems if stem.partition(".")[0] == Path(name).name]


def keep(runs: Path, label: str, picture: str) -> None:
    """Record the results of a finished `turnout reproduce`."""
    plain = json.loads((runs / "findings.json").read_text(encoding="utf-8"))
    name = plain["reproduction"] + (f".{label}" if label else "")
    (FOLDER / f"{name}.findings.json").write_text(json.dumps(plain), encoding="utf-8")
    refresh(name)
    if picture == "measure":
        outcome = Artifact.read(name).outcome
        measure_figure(outcome, outcome.reproduction.measures[0]).savefig(FOLDER / f"{name}.png", dpi=100)
    if picture == "curve":
        reproduction = declared(plain["reproduction"])
        folders = {panel: runs / panel if len(reproduction.panels) > 1 else runs for panel in plain["values"]}
        outcome = Outcome(reproduction, {panel: load_records([folder]) for panel, folder in folders.items()})
        curve_figure(outcome, reproduction.curves[0]).savefig(FOLDER / f"{name}.png", dpi=100)


def refresh(name: str) -> None:
    """Write findings and results.csv of an artifact as they follow from its figures, with the checks of the declaration."""
    path = FOLDER / f"{name}.findings.json"
    outcome = Artifact.read(name).outcome
    plain = {**json.loads(path.read_text(encoding="utf-8")), **outcome.as_plain()}
    del plain["figures"]  # results.csv has them
    text = json.dumps(plain, indent=1, ensure_ascii=False)
    text = re.sub(r"(?<=\{)\s+(\"-?\d+\": [^{}]*?)\s+(?=\})", lambda found: re.sub(r"\s+", " ", found[1]), text)
    path.write_text(text + "\n", encoding="utf-8")
    (FOLDER / f"{name}.results.csv").write_text(csv(outcome), encoding="utf-8")


def readme(text: str) -> str:
    """Return a README with its marked parts written anew."""
    return MARKED.sub(lambda found: found[1] + shown(Artifact.read(found[2])) + found[3], text)


def shown(artifact: Artifact) -> str:
    """Return how an artifact came about, its figures and its findings, in Markdown."""
    changes = f"Not as declared: {'; '.join(artifact.outcome.changes)}.\n\n" if artifact.outcome.changes else ""
    several = len(artifact.outcome.panels) > 1
    findings = [
        f"- *{f.claim}*{' (' + ', '.join(f.panels) + ')' if several else ''}: {told(f)}."
        for f in artifact.outcome.findings()
    ]
    parts = [f"{artifact.how}\n\n{changes}{markdown(artifact.outcome)}", "\n".join(findings)]
    return "\n" + "\n\n".join(part for part in parts if part) + "\n\n"


def told(finding: Finding) -> str:
    """Return a verdict and its reason."""
    if finding.verdict == NOT_RUN:
        return finding.reason
    return f"{finding.verdict}, {finding.reason}" + ("" if finding.p is None else f", p {shown_p(finding.p)}")


def overall(findings: Sequence[Finding]) -> str:
    """Return what became of a claim over all panels that were run."""
    verdicts = {finding.verdict for finding in findings} - {NOT_RUN}
    if not verdicts:
        return NOT_RUN
    if HOLDS in verdicts:
        return HOLDS if len(verdicts) == 1 else PART
    return DOES_NOT_HOLD if DOES_NOT_HOLD in verdicts else UNDECIDED


def markdown(outcome: Outcome) -> str:
    """Return the figures as a table in Markdown."""
    head = ["panel", "algorithm", *titles(outcome)]
    rows = [["---", "---", *["---:"] * (len(head) - 2)]]
    before = None
    for line in outcome.lines():
        panel = line.panel.titled(reaches(outcome)) if line.panel is not before else ""
        rows.append([panel, f"`{line.algorithm}`", *cells(outcome, line)])
        before = line.panel
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, *rows))


def numbers(outcome: Outcome, claim: Claim, finding: Finding, paper: bool) -> str:
    """Return the figures that a claim is about: medians over seeds, or those of the paper."""
    measure: Measure = claim.measure or outcome.reproduction.measures[0]
    lines = [
        line
        for line in outcome.lines()
        if line.panel.title in finding.panels and line.algorithm in claim.check.algorithms
    ]
    texts = []
    for line in lines:
        if paper:
            figure = line.paper.get(measure)
        else:
            values = outcome.figures(line.panel, measure)[line.algorithm]
            figure = measure.shown(Quartiles.over(list(values.values()))) if values else None
        if figure is not None:
            texts.append(f"`{line.algorithm}` {figure}")
    return ", ".join(texts) or "–"


def claims(name: str, recorded: Sequence[Artifact]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each claim of a declaration, its verdict, and its rows of the page."""
    reproduction = declared(name)
    for claim in reproduction.claims:
        found = [(each, f) for each in recorded for f in each.outcome.findings() if f.claim == claim.text]
        found = [(each, f) for each, f in found if f.verdict != NOT_RUN]
        measure, rows = (claim.measure or reproduction.measures[0]).title, []
        verdict = overall([f for _, f in found])
        for each, f in found:
            first = [claim.text, f"**{verdict}**"] if not rows else ["", ""]
            figures = [numbers(each.outcome, claim, f, paper) for paper in (True, False)]
            here = [", ".join(f.panels), f"{f.verdict}, {f.reason}", str(f.seeds), shown_p(f.p)]
            rows.append(" | ".join([*first, *here, measure, *figures]))
        yield claim.text, verdict, rows or [f"{claim.text} | **{NOT_RUN}** | – | – | – | – | {measure} | – | –"]


@dataclass(frozen=True)
class Section:
    """The tables and figures of one paper, and their claims by verdict, each with the sizes that were run."""

    text: str
    claims: dict[str, list[str]]

    @property
    def short(self) -> str:
        """What was confirmed and what was not, as a list."""
        heads = {HOLDS: "Confirmed", PART: "Confirmed in part", DOES_NOT_HOLD: "Not confirmed"}
        lines = [f"- {head}:" + "".join(f"\n    - {each}" for each in self.claims[verdict]) for verdict, head in heads.items()
                 if self.claims[verdict]]  # fmt: skip
        open_ones = [
            f"{counted(len(self.claims[each]), 'claim')} {each}" for each in (UNDECIDED, NOT_RUN) if self.claims[each]
        ]
        return "\n".join([*lines, *([f"- {', '.join(open_ones)}"] if open_ones else [])])


def section(items: Sequence[dict[str, Any]]) -> Section:
    """Return the section of a paper. A declaration that shows several items is shown and counted with the first."""
    parts: list[str] = []
    by_verdict: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
    seen = set[str]()
    for item in items:
        parts.append(f"### {item['item']}: {item['about']}")
        for name in item.get("declared", []):
            if name in seen:
                parts.append(f"Declared as `{name}`; see above.")
                continue
            seen.add(name)
            recorded = artifacts(name)
            runs = [f"- {each.how}" + "".join(f"; {change}" for change in each.outcome.changes) for each in recorded]
            parts.append(
                "\n".join(
                    [f"Declared as `{name}`" + (":" if runs else "; no artifact is recorded."), "", *runs]
                ).strip()
            )
            found = list(claims(name, recorded))
            size = "; ".join(dict.fromkeys(each.size for each in recorded))
            for claim, verdict, _ in found:
                by_verdict[verdict].append(f"{claim} (`{name}`: {size})")
            rows = [f"| {row} |" for _, _, rows in found for row in rows]
            head = [
                "| claim | finding | panel | in that panel | seeds | p | figure | paper | ours |",
                "|---|---|---|---|---:|---:|---|---|---|",
            ]
            parts += ["\n".join([*head, *rows])] if rows else []
        if "missing" in item:
            parts.append(("Not run: " if "declared" in item else "Not declared: ") + item["missing"])
    return Section("\n\n".join(parts), by_verdict)


def page() -> str:
    """Return the page of claims: what was confirmed of each paper, and then every table and figure."""
    contents = tomllib.loads((FOLDER / "papers.toml").read_text(encoding="utf-8"))
    rows, short, bodies = [], [], []
    for name, paper in contents["papers"].items():
        found = section(paper["shows"])
        counts = [str(len(each)) for each in found.claims.values()]
        rows.append(f"| [{paper['title']}](#{name}) | {' | '.join(counts)} |")
        said = [f"### {paper['title']}", *([paper["regime"].strip()] if "regime" in paper else []), found.short]
        short.append("\n\n".join(said))
        bodies.append(f'<a id="{name}"></a>\n\n## {paper["title"]}\n\n{paper["source"]}\n\n{found.text}')
    summary = "\n".join([f"| claims | {' | '.join(VERDICTS)} |", "|---|" + "---:|" * len(VERDICTS), *rows])
    return "\n\n".join([contents["introduction"].strip(), summary, "## In short", *short, *bodies]) + "\n"


def outdated() -> list[str]:
    """Return the artifacts whose sources are not today's, or were not recorded."""
    lines = []
    for path in sorted(FOLDER.glob("*/*.findings.json")):
        run, name = json.loads(path.read_text(encoding="utf-8"))["run"], path.relative_to(FOLDER).as_posix()
        then = run.get("sources")
        if then is None or then["hash"] != hash_of(then["modules"].split()):
            why = "its sources were not recorded" if then is None else "its sources have changed"
            lines.append(f"{name.removesuffix('.findings.json')}: {why}; {run['seconds']:.0f} s: {run['command']}")
    return lines


def texts() -> dict[Path, str]:
    """Return everything that is written from artifacts, by its file."""
    readmes = {path: readme(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*/README.md"))}
    return {**readmes, FOLDER / "README.md": page()}


def main() -> None:
    """Record a folder, or write READMEs and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write", help="write READMEs and the page of claims")
    commands.add_parser("outdated", help="list artifacts whose sources are not today's")
    recording = commands.add_parser("keep", help="record a finished run")
    recording.add_argument("runs", type=Path, help="the folder of turnout reproduce")
    recording.add_argument("--label", default="", help="tells several runs of one declaration apart")
    recording.add_argument(
        "--picture", choices=("", "curve", "measure"), default="", help="draw the first curve or measure"
    )
    given = parser.parse_args()
    if given.command == "outdated":
        print("\n".join(outdated()))
        return
    if given.command == "keep":
        keep(given.runs, given.label, given.picture)
    for path in FOLDER.glob("*/*.findings.json"):
        refresh(path.relative_to(FOLDER).as_posix().removesuffix(".findings.json"))
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
