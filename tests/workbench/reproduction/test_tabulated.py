"""Outcomes from tables: recorded figures, and figures that a function computes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from turnout.cli import app
from turnout.core.checks import ConfigurationError, DataError
from turnout.workbench.reproduction.reading import read
from turnout.workbench.reproduction.running import command
from turnout.workbench.reproduction.table import csv
from turnout.workbench.reproduction.tabulated import Quantity, read_outcome

DECLARED = """
title = "Squares"
reference = "Somebody, Figure 3"
numbers = "squares.py:numbers"
measures = ["square", { name = "error", better = "less" }]
seeds = 3

[algorithms.one]
[algorithms.two]

[panels.small]

[[claims]]
text = "Two is larger"
order = ["two", "one"]

[[claims]]
text = "One has the smaller error"
measure = "error"
order = ["one", "two"]
"""
FUNCTION = """
def numbers(seed):
    return {"small": {"square": {"one": 1 + seed, "two": 4 + 2 * seed}, "error": {"one": 0.1, "two": 0.3 + 0.01 * seed}}}
"""


def test_computed_outcome_is_read_back_from_its_record(outcome, tmp_path):
    path = tmp_path / "findings.json"
    path.write_text(json.dumps(outcome.as_plain()), encoding="utf-8")
    again = read_outcome(outcome.reproduction, path)
    assert again.as_plain() == {**outcome.as_plain(), "changes": list(again.changes)}
    assert csv(again) == csv(outcome)


def test_malformed_records_are_refused(outcome, tmp_path):
    path = tmp_path / "findings.json"
    huge = {**outcome.as_plain(), "values": {"easy": {"rounds": {"fast": {"0": 10**400}}}}}
    for text in ("{", "[]", '{"values": {}}', '{"a":' * 5000, json.dumps(huge)):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"needed findings\.json of `turnout reproduce`"):
            read_outcome(outcome.reproduction, path)
    plain = outcome.as_plain()
    path.write_text(json.dumps({**plain, "reproduction": "paper/other"}), encoding="utf-8")
    with pytest.raises(DataError, match="holds the figures of paper/other, needed those of paper/made"):
        read_outcome(outcome.reproduction, path)
    plain["values"]["easy"]["rounds"]["unknown"] = {"0": 1.0}
    path.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="algorithm in panel easy"):
        read_outcome(outcome.reproduction, path)


def test_computed_figures_are_printed_and_written(tmp_path):
    (tmp_path / "squares.toml").write_text(DECLARED, encoding="utf-8")
    (tmp_path / "squares.py").write_text(FUNCTION, encoding="utf-8")
    arguments = ["reproduce", str(tmp_path / "squares.toml"), "--folder", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "2 (1.50 to 2.50)" in done.output or "2 (1 to 3)" in done.output
    plain = json.loads((tmp_path / "out" / "findings.json").read_text(encoding="utf-8"))
    assert [finding["verdict"] for finding in plain["findings"]] == ["holds", "holds"]
    assert plain["values"]["small"]["square"]["two"] == {"0": 4.0, "1": 6.0, "2": 8.0}
    assert (tmp_path / "out" / "results.csv").exists()


def test_measures_of_computed_figures_have_names(tmp_path):
    path = tmp_path / "squares.toml"
    path.write_text(DECLARED, encoding="utf-8")
    drawing = read(path, "paper/squares")
    assert drawing.is_computed
    assert [measure.less_is_better for measure in drawing.measures] == [False, True]
    for wrong in (3, {"better": "less"}, {"name": "error", "unit": "m"}):
        with pytest.raises(ConfigurationError, match=r"measures: got .*, needed a name or \{name"):
            Quantity.read(wrong)
    with pytest.raises(ConfigurationError, match="better"):
        Quantity.read({"name": "error", "better": "fewer"})


def test_recorded_command_omits_options_without_effect_on_figures():
    given = ["reproduce", "folb/figure-2", "-j", "2", "--seeds", "3", "--folder=x", "-q", "--threads", "1", "a.b=c d"]
    assert command(given) == "turnout reproduce folb/figure-2 --seeds 3 'a.b=c d'"
