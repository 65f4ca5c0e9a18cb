"""The page on monitoring: its files can be read, and its metrics are those that a server has."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from turnout_serve.server.http.status import metrics
from turnout_serve.server.run.figures import DECILES
from turnout_serve.wire.status import DISTRIBUTIONS, Status

PAGE = (Path(__file__).parents[3] / "docs/guides/monitoring.md").read_text("utf-8")
FIGURES = Status.read({
    "run": "r", "algorithm": "a", "pace": "Rounds", "state": "training",
    "version": 3, "rounds": 9, "enrolled": 4, "there": 3, "at_work": 2, "waiting": 1, "dropped": {"late": 1},
    "sums": {"steps": 3, "opened": 2}, "unusual": {"step": 2, "norm": 9.0, "usual": 0.5},
    "answers": {"201": 5}, "privacy": {"epsilon": 1.5, "delta": 0.1, "answers": 2}, "journal": 7, "healthy": True,
    "curves": {"test_accuracy": [[3, 0.5]]},
    "heard": {"never": 0.25, "deciles": {name: [0.0] * len(DECILES) for name in DISTRIBUTIONS}},
    "evaluation": {"version": 3, "asked": 4, "answered": 3, "lost": {"late": 1}, "figures": {"client_test_worst": 0.5}},
})  # fmt: skip
"""Of a run that has all metrics."""


def test_the_metrics_of_the_page_are_those_of_a_server():
    names = set(re.findall(r"^# TYPE (\S+)", metrics(FIGURES), flags=re.MULTILINE))
    used = set(re.findall(r"\bturnout_[a-z_]+", PAGE))
    assert used <= names
    assert names - used <= {"turnout_evaluation_lost", "turnout_evaluation_version"}


def test_counters_end_in_total_and_usual_series_are_there_from_the_start():
    """A ratio over a series that does not exist is no number, and an alert of it never fires."""
    text = metrics(Status.read({**FIGURES.fields(), "answers": {}, "dropped": {}, "evaluation": None, "privacy": None}))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, flags=re.MULTILINE))
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items())
    for sample in ('answers_total{code="201"}', 'answers_total{code="422"}', 'tasks_dropped_total{reason="late"}'):
        assert f"turnout_{sample} 0" in text.splitlines()


def test_ratios_of_alerts_have_a_denominator_without_reports():
    """Where every report is refused, no 201 may exist: `x > y` without a `y` never fires, and `x > 0` does."""
    for rate in re.findall(r"> [0-9.]+ \* .*rate\(.*", PAGE):
        assert re.fullmatch(r"> [0-9.]+ \* \(sum\(rate\(.*\)\) or vector\(0\)\)", rate), rate


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool of Prometheus tests rules")
def test_alerts_fire_when_they_say(tmp_path):
    (tmp_path / "turnout.rules.yml").write_text(re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)[1])
    shutil.copy(Path(__file__).parent / "alerts.yml", tmp_path)
    done = subprocess.run(
        ["promtool", "test", "rules", "alerts.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_monitoring_files_are_valid():
    """Rules have what Prometheus needs: names, expressions with balanced brackets, durations and a summary."""
    yaml = pytest.importorskip("yaml")
    scrape, rules = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL))
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"]
    (group,) = rules["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) == 9
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "annotations"}
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
        assert all(rule["expr"].count(a) == rule["expr"].count(b) for a, b in ("()", "[]", "{}"))
        assert rule["annotations"]["summary"].endswith(".")
