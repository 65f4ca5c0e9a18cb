"""READMEs and the page of claims agree with recorded artifacts."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from turnout.record.environment import hash_of
from turnout.workbench.reproduction.reading import names
from turnout.workbench.reproduction.table import csv

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "reproductions"
RECORDED = sorted(
    path.relative_to(FOLDER).as_posix().removesuffix(".findings.json") for path in FOLDER.glob("*/*.findings.json")
)
LOST = {
    "fedau/table-1.small", "fedau/table-d-6-1", "folb/figure-5",
    "maxfl/table-1.class", "participation/patterns.bursts",
}  # fmt: skip
"""Artifacts whose commit is unknown."""

RARE = "test_accuracy_of_8_9"
"""Accuracy on the digits of clients who are rarely there, in participation/phones."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script that records artifacts and writes the pages."""
    spec = importlib.util.spec_from_file_location("reproductions_script", ROOT / "scripts" / "reproductions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_readmes_and_page_equal_the_output_of_the_script(script: ModuleType) -> None:
    for path, text in script.texts().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run python scripts/reproductions.py write"


@pytest.mark.parametrize("name", RECORDED)
def test_artifact_is_consistent(script: ModuleType, name: str) -> None:
    """Findings and results.csv follow from the figures of single seeds, by the checks of the current declaration."""
    artifact = script.Artifact.read(name)
    path = FOLDER / f"{name}.findings.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))
    assert artifact.outcome.as_plain()["findings"] == recorded["findings"]
    assert csv(artifact.outcome) == (FOLDER / f"{name}.results.csv").read_text(encoding="utf-8")
    assert path.stat().st_size < 50_000
    assert recorded["run"]["command"].startswith(f"turnout reproduce {name.partition('.')[0]}")
    assert len(recorded["run"]["commit"]) == 40


@pytest.mark.parametrize("name", RECORDED)
def test_commit_of_an_artifact_exists(name: str) -> None:
    """Artifacts of `LOST` were made at commits that are not in this history any more; none may be added."""
    asked = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"], capture_output=True, text=True
    )
    if asked.stdout.strip() != "false":
        pytest.skip("needs a clone with its history")
    commit = json.loads((FOLDER / f"{name}.findings.json").read_text(encoding="utf-8"))["run"]["commit"]
    found = subprocess.run(["git", "-C", str(ROOT), "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True)
    assert (found.returncode == 0) != (name in LOST), f"{name}: run it again, or take it out of LOST"


def test_artifact_is_outdated_where_a_source_has_changed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    (tmp_path / "paper").mkdir()
    run = {"seconds": 12.3, "command": "turnout reproduce paper/x"}
    now = {"modules": "core.random algorithms.fedau", "hash": hash_of(["algorithms.fedau", "core.random"])}
    for name, then in {"now": now, "then": {**now, "hash": "0"}, "gone": {**now, "modules": "core.gone"}}.items():
        (tmp_path / "paper" / f"{name}.findings.json").write_text(json.dumps({"run": {**run, "sources": then}}))
    (tmp_path / "paper" / "old.findings.json").write_text(json.dumps({"run": run}))
    assert script.outdated() == [
        "paper/gone: its sources have changed; 12 s: turnout reproduce paper/x",
        "paper/old: its sources were not recorded; 12 s: turnout reproduce paper/x",
        "paper/then: its sources have changed; 12 s: turnout reproduce paper/x",
    ]


def test_declaration_under_two_items_counts_once(script: ModuleType) -> None:
    item = {"item": "Table 1", "about": "accuracy", "declared": ["fedau/digits"]}
    once, twice = script.section([item]), script.section([item, {**item, "item": "Figure 2"}])
    assert twice.claims == once.claims
    assert "### Figure 2: accuracy\n\nDeclared as `fedau/digits`; see above." in twice.text


def test_page_begins_with_what_was_confirmed_of_each_paper(script: ModuleType) -> None:
    short = script.page().partition("## In short")[2].partition('<a id="fedau">')[0]
    for line in (
        "### FedAU",
        "### MaxFL",
        "- Confirmed:",
        "FedAvg's model meets the requirements of 93 % of the clients here",
    ):
        assert line in short
    confirmed = script.section([{"item": "Figure 1", "about": "weights", "declared": ["fedau/figure-d-4"]}]).short
    assert "(`fedau/figure-d-4`: 5 seeds)" in confirmed


def test_every_artifact_is_in_its_readme() -> None:
    for name in RECORDED:
        readme = (FOLDER / name).parent / "README.md"
        assert f"<!-- artifact: {name} -->" in readme.read_text(encoding="utf-8"), f"{readme} does not show {name}"


def test_page_has_every_declaration() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"Declared as `{name}`" in page for name in names(FOLDER))


def test_changed_figure_changes_verdict_and_pages(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is no copy of the verdicts: it follows from the figures."""
    name = "fedau/digits"
    (tmp_path / "fedau").mkdir()
    for path in (*FOLDER.glob("fedau/digits*"), FOLDER / "fedau" / "README.md"):
        (tmp_path / "fedau" / path.name).write_bytes(path.read_bytes())
    before = script.shown(script.Artifact.read(name))
    path = tmp_path / "fedau" / "digits.findings.json"
    plain = json.loads(path.read_text(encoding="utf-8"))
    figures = plain["values"]["digits"]["final train_accuracy"]
    figures["fedau"] = dict.fromkeys(figures["fedau"], 0.5)
    path.write_text(json.dumps(plain), encoding="utf-8")
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    after = script.shown(script.Artifact.read(name))
    assert "*A cutoff of K = 50 is better than none*: undecided" in before
    assert "*A cutoff of K = 50 is better than none*: does not hold" in after
    assert "| `fedau` | 50.0 (50.0 to 50.0)" in after


def values(name: str, measure: str) -> dict[str, list[float]]:
    """Return the figures of an artifact of one panel in percent, seed after seed."""
    plain = json.loads((FOLDER / f"{name}.findings.json").read_text(encoding="utf-8"))
    (panel,) = plain["values"].values()
    return {key: [100 * value for value in seeds.values()] for key, seeds in panel[measure].items()}


def test_table_of_the_front_page_is_recorded() -> None:
    """Mean and standard deviation over seeds of the rare digits and of all, in README.md."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rare, every = (values("participation/phones", f"final {name}") for name in (RARE, "test_accuracy"))
    for name in rare:
        found = re.search(rf"`{name}` \| (\S+) ± (\S+) \| [^|]+ \| (\S+) ± (\S+) \|", text)
        assert found, name
        expected = [figure(each[name]) for each in (rare, every) for figure in (statistics.mean, statistics.stdev)]
        assert [float(number) for number in found.groups()] == pytest.approx(expected, abs=0.0501), name


def test_figures_in_the_guide_to_algorithms_are_recorded() -> None:
    text = (ROOT / "docs/guides/choosing.md").read_text(encoding="utf-8")
    found = re.search(
        r"participants recognizes (\d+) % of these digits, FedAU (\d+) %, `known_statistics` (\d+) %, and FedVARP and MIFA, "
        r"[^,]+, (\d+) and (\d+) %",
        text.replace("\n", " "),
    )
    assert found
    rare = values("participation/phones", f"final {RARE}")
    names = ("average_participating", "fedau", "known_statistics", "fedvarp", "mifa")
    assert [int(number) for number in found.groups()] == [round(statistics.mean(rare[name])) for name in names]


def test_figures_in_the_guide_to_privacy_are_recorded(script: ModuleType) -> None:
    text = (ROOT / "docs/guides/privacy.md").read_text(encoding="utf-8")
    outcome = script.Artifact.read("privacy/epsilon").outcome
    (measure,) = outcome.reproduction.measures
    shown = {line.algorithm: measure.shown(line.ours[measure]) for line in outcome.lines()}
    for budget in (2, 8, 32):
        cells = [shown[f"{noise}_{budget}"] for noise in ("independent", "banded", "toeplitz")]
        assert f"| {budget} | {' | '.join(cells)} |" in text
    assert shown["fedau"] in text
    assert shown["clipped"] in text.replace("\n", " ")
