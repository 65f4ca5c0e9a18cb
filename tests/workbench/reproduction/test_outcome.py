"""Figures and findings from made-up runs: known answers."""

import csv as csv_format
import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from turnout.workbench.reproduction.outcome import Outcome, verdict
from turnout.workbench.reproduction.table import csv, rich_findings, rich_table


def text_of(table):
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table)
    return [" ".join(line.split()) for line in console.export_text().splitlines()]


def test_table_has_our_figures_beside_those_of_the_paper(outcome):
    lines = text_of(rich_table(outcome))
    assert (
        lines[1]
        == "panel algorithm rounds, paper rounds, ours test accuracy (%), paper test accuracy (%), ours reached by"
    )
    assert "easy data, 50 % fast 2 2 (2 to 2) 80 ± 1 80.0 (80.0 to 80.0) 4/4" in lines
    assert "slow 1,000 3 (3 to 3) – 50.0 (45.0 to 50.0) 3/4" in lines
    assert "hard data, 90 % fast – not reached – 50.0 (50.0 to 50.0) 0/2" in lines


def test_every_claim_has_a_finding_for_every_panel_or_one_between_them(outcome):
    found = [(f.claim, f.panels, f.verdict, f.reason) for f in outcome.findings()]
    assert found == [
        ("Fast is faster", ("easy data",), "holds", "true of 4 of 4 seeds"),
        ("Fast is faster", ("hard data",), "undecided", "true of 0 of 2 seeds, at least 3 are needed"),
        (
            "Hard data make more of a difference",
            ("easy data", "hard data"),
            "undecided",
            "true of 0 of 0 seeds, at least 3 are needed",
        ),
    ]
    lines = text_of(rich_findings(outcome.findings()))
    assert "Fast is faster easy data holds true of 4 of 4 seeds" in lines


def test_panels_without_runs_leave_claims_unknown(outcome):
    alone = replace(outcome, records={"easy": outcome.records["easy"]})
    assert [f.panels for f in alone.findings()] == [("easy data",), ("easy data", "hard data")]
    assert (alone.findings()[1].verdict, alone.findings()[1].reason) == ("undecided", "not run: hard data")


def test_claims_skip_panels_without_their_algorithms(outcome):
    with_rare = replace(outcome, records={"rare": outcome.records["easy"][:4]})
    assert [f.claim for f in with_rare.findings()] == ["Hard data make more of a difference"]
    assert [(line.algorithm, line.seeds) for line in with_rare.lines()] == [("fast", 4)]


def test_an_algorithm_without_a_finished_run_has_no_figures(outcome):
    fast = [record for record in outcome.records["easy"] if record.algorithm == "fast"]
    broken = replace(outcome, records={"easy": fast})
    assert "slow 1,000 – – – 0/0" in text_of(rich_table(broken))
    assert broken.findings()[0].reason == "true of 0 of 0 seeds, at least 3 are needed"
    assert replace(outcome, records={"easy": []}).lines()[0].ours == ()


@pytest.mark.parametrize(
    ("truths", "expected"),
    [
        ([True] * 3 + [False], ("holds", "true of 3 of 4 seeds")),
        ([True] * 2 + [False], ("undecided", "the spread overlaps, true of 2 of 3 seeds")),
        ([False] * 3 + [True], ("does not hold", "true of 1 of 4 seeds")),
        ([True] * 8 + [False] * 2, ("holds", "true of 8 of 10 seeds")),
        ([True] * 7 + [False] * 3, ("undecided", "the spread overlaps, true of 7 of 10 seeds")),
        ([True] * 2 + [None], ("undecided", "true of 2 of 3 seeds, 1 undecided")),
        ([None] * 5, ("undecided", "true of 0 of 5 seeds, 5 undecided")),
        ([True], ("undecided", "true of 1 of 1 seed, at least 3 are needed")),
        ([True] * 3, ("holds", "true of 3 of 3 seeds")),
    ],
)
def test_claim_holds_for_three_quarters_of_the_seeds(truths, expected):
    assert verdict(truths) == expected


def test_files_contain_figures_findings_and_runs(outcome):
    rows = list(csv_format.DictReader(csv(outcome).splitlines()))
    assert len(rows) == 8
    first = rows[0]
    assert (first["panel"], first["algorithm"], first["measure"], first["paper"]) == ("easy", "fast", "rounds", "2")
    assert [row["median"] for row in rows if row["panel"] == "hard" and row["measure"] == "rounds"] == ["inf", "inf"]
    assert float(rows[1]["median"]) == 0.8
    plain = outcome.as_plain()
    assert plain["changes"] == ["2 seeds instead of 4"]
    assert plain["findings"][0] == {
        "claim": "Fast is faster",
        "panels": ["easy data"],
        "verdict": "holds",
        "reason": "true of 4 of 4 seeds",
    }
    hard = next(each for each in plain["figures"] if each["panel"] == "hard")
    assert hard["measures"][0] == {
        "measure": "rounds", "paper": None, "low": None, "median": None, "high": None, "reached": 0,
    }  # fmt: skip
    assert not any(isinstance(value, float) and math.isinf(value) for value in str(plain))


def test_column_of_paper_figures_is_omitted_without_them(declared, outcome):
    bare = declared(('paper = { fast = [2, "80 ± 1"], slow = 1000 }\n', ""))
    lines = text_of(rich_table(Outcome(bare, outcome.records)))
    assert lines[1] == "panel algorithm rounds test accuracy (%) reached by"
    final = declared(('measures = ["rounds", "final test_accuracy"]', ""), ('[2, "80 ± 1"]', "2"))
    assert text_of(rich_table(Outcome(final, outcome.records)))[1] == (
        "panel algorithm paper test accuracy (%), ours seeds"
    )


def test_algorithms_without_runs_leave_claims_unknown(outcome):
    alone = replace(outcome, reproduction=outcome.reproduction.narrowed(["slow"]))
    assert [(f.panels, f.reason) for f in alone.findings()] == [(("easy data", "hard data"), "not run: fast")]
