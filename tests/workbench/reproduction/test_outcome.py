"""Figures and findings from made-up runs: known answers."""

import csv as csv_format
import io
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from turnout.results.measure import Measure
from turnout.workbench.reproduction.checks import Figures, check_of
from turnout.workbench.reproduction.outcome import Outcome, verdict
from turnout.workbench.reproduction.table import csv, rich_findings, rich_table
from turnout.workbench.reproduction.testing import paired_test


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
    assert "easy data, 50 % fast 2 2 (1.50 to 2) 80 ± 1 80.0 (80.0 to 80.0) 4/4" in lines
    assert "slow 1,000 3 (3 to 3) – 50.0 (45.0 to 50.0) 3/4" in lines
    assert "hard data, 90 % fast – not reached – 50.0 (50.0 to 50.0) 0/2" in lines


def test_every_claim_has_a_finding_for_every_panel_or_one_between_them(outcome):
    found = [(f.claim, f.panels, f.verdict, f.reason) for f in outcome.findings()]
    assert found == [
        ("Fast is faster", ("easy data",), "holds", "true of 4 of 4 seeds, margin +1.25 ± 0.796"),
        ("Fast is faster", ("hard data",), "undecided", "true of 0 of 2 seeds, 2 unknown, at least 3 are needed"),
        (
            "Hard data make more of a difference",
            ("easy data", "hard data"),
            "undecided",
            "true of 0 of 0 seeds, at least 3 are needed",
        ),
    ]
    lines = text_of(rich_findings(outcome.findings()))
    assert "Fast is faster easy data holds true of 4 of 4 seeds, margin +1.25 ± 0.796 0.015" in lines


def test_panels_without_runs_leave_claims_unknown(outcome):
    alone = replace(outcome, records={"easy": outcome.records["easy"]})
    assert [f.panels for f in alone.findings()] == [("easy data",), ("easy data", "hard data")]
    assert (alone.findings()[1].verdict, alone.findings()[1].reason) == ("not run", "not run: hard data")


def test_claims_skip_panels_without_their_algorithms(outcome):
    with_rare = replace(outcome, records={"rare": outcome.records["easy"][:4]})
    assert [f.claim for f in with_rare.findings()] == ["Hard data make more of a difference"]
    assert [(line.algorithm, line.seeds) for line in with_rare.lines()] == [("fast", 4)]


def test_an_algorithm_without_a_finished_run_has_no_figures(outcome):
    fast = [record for record in outcome.records["easy"] if record.algorithm == "fast"]
    broken = replace(outcome, records={"easy": fast})
    assert "slow 1,000 – – – 0/0" in text_of(rich_table(broken))
    assert (broken.findings()[0].verdict, broken.findings()[0].reason) == ("not run", "not run: slow")
    assert replace(outcome, records={"easy": []}).lines()[0].ours == {}


def differing(*differences: float, other: tuple[float, ...] = ()) -> Sequence[Figures]:
    """Return one panel in which a is ahead of b by these differences, and of c by others."""
    panel = {"a": dict(enumerate(differences)), "b": dict.fromkeys(range(len(differences)), 0.0)}
    panel["c"] = {seed: panel["a"][seed] - value for seed, value in enumerate(other)}
    return [panel]


def judged(figures: Sequence[Figures], order: list, times: int = 1) -> tuple[str, str]:
    """Return the verdict on a ranking by accuracy, with a p-value that is multiplied for further claims."""
    check, measure = check_of({"order": order}), Measure("final", "test_accuracy")
    test = paired_test(check, figures, measure)
    return verdict(check.truths(figures, measure), test, math.nan if test is None else times * test.p, measure.scale)


@pytest.mark.parametrize(
    ("differences", "times", "expected"),
    [
        ((0.02, 0.03, 0.01), 1, ("undecided", "true of 3 of 3 seeds, margin +2 ± 2.48")),  # p 0.074
        ((0.02, 0.03, 0.025), 1, ("holds", "true of 3 of 3 seeds, margin +2.50 ± 1.24")),  # p 0.013
        ((0.02, 0.03, 0.025), 4, ("undecided", "true of 3 of 3 seeds, margin +2.50 ± 1.24")),
        ((-0.02, -0.03, -0.025), 1, ("does not hold", "true of 0 of 3 seeds, margin -2.50 ± 1.24")),
        ((0.1, 0.2, -0.01, 0.05), 1, ("undecided", "true of 3 of 4 seeds, margin +8.50 ± 14.1")),
        ((0.0, 0.0, 0.0), 1, ("undecided", "true of 0 of 3 seeds, without a difference")),
        ((0.1, 0.1), 1, ("undecided", "true of 2 of 2 seeds, at least 3 are needed")),
        ((0.1,), 1, ("undecided", "true of 1 of 1 seed, at least 3 are needed")),
    ],
)
def test_claim_about_two_is_decided_by_their_paired_difference(differences, times, expected):
    assert judged(differing(*differences), ["a", "b"], times) == expected


def test_ranking_holds_if_the_weakest_part_does_and_fails_with_the_falsest():
    sure, open_, false = (0.02, 0.03, 0.025), (0.02, 0.03, 0.01), (-0.02, -0.03, -0.025)
    assert judged(differing(*sure, other=open_), ["a", ["b", "c"]]) == (
        "undecided", "true of 3 of 3 seeds, margin +2 ± 2.48",
    )  # fmt: skip
    assert judged(differing(*sure, other=sure), ["a", ["b", "c"]])[0] == "holds"
    assert judged(differing(*open_, other=false), ["a", ["b", "c"]])[0] == "does not hold"
    order, measure = check_of({"order": ["a", ["b", "c"]]}), Measure("final", "test_accuracy")
    one = paired_test(order, differing(*sure, other=false), measure)
    two = paired_test(order, differing(*false, other=false), measure)
    assert one is not None
    assert two is not None
    assert two.p == pytest.approx(2 * one.p)  # either of two parts may be the false one


def test_p_values_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    values = (0.02, 0.05, -0.01, 0.03, 0.04)
    test = paired_test(check_of({"order": ["a", "b"]}), differing(*values), Measure("final", "test_accuracy"))
    assert test is not None
    assert test.margin is not None
    assert test.p == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue)
    low, high = stats.t.interval(0.95, 4, loc=test.mean, scale=stats.sem(values))
    assert (test.mean - test.margin, test.mean + test.margin) == pytest.approx((low, high))


def test_run_that_did_not_arrive_counts_with_the_largest_cost_of_its_panel():
    panel = {"a": {0: 10.0, 1: 12.0, 2: 11.0, 3: math.inf}, "b": {0: 30.0, 1: math.inf, 2: 28.0, 3: math.inf}}
    test = paired_test(check_of({"order": ["a", "b"]}), [panel], Measure("rounds"))
    assert test is not None
    assert test.num == 3  # nothing is known of the last seed
    assert test.mean == pytest.approx((20 + 18 + 17) / 3)


def test_claim_is_decided_by_signs_if_one_side_never_arrives():
    panel = {"a": dict.fromkeys(range(6), 10.0), "b": dict.fromkeys(range(6), math.inf)}
    forth, back = (
        paired_test(check_of({"order": order}), [panel], Measure("rounds")) for order in (["a", "b"], ["b", "a"])
    )
    assert forth is not None
    assert back is not None
    assert (forth.p, forth.mean > 0) == (back.p, back.mean < 0) == (2**-5, True)


def test_p_values_are_corrected_for_the_claims_of_a_table(declared):
    claim = """
[[claims]]
text = "Slow is less accurate"
measure = "final test_accuracy"
order = ["fast", "slow"]
panels = ["easy"]
"""
    last = '[[claims]]\ntext = "Hard data'
    several = declared((last, f"{claim}{claim.replace('Slow is', 'Or')}\n{last}"))
    figures = {"fast": {0: 0.8, 1: 0.9, 2: 0.85, 3: 0.8}, "slow": {0: 0.7, 1: 0.75, 2: 0.8, 3: 0.6}}
    values = {"easy": {"rounds": {}, "final test_accuracy": figures}}
    one, two = (f for f in Outcome(several, {"easy": ()}, (), values).findings() if f.seeds)
    alone = paired_test(check_of({"order": ["fast", "slow"]}), [figures], Measure("final", "test_accuracy"))
    assert alone is not None
    assert one.p == two.p == pytest.approx(2 * alone.p)
    assert one.verdict == ("holds" if 2 * alone.p < 0.05 else "undecided")


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
        "reason": "true of 4 of 4 seeds, margin +1.25 ± 0.796",
        "p": 0.0154,
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
