"""``turnout reproduce``."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnout.comparison.folders import load_records
from turnout.experiment import Experiment
from turnout.record.query import History
from turnout.simulation.running import Interrupted

Turnout = Callable[..., Any]

FILE = """
title = "Large steps against small ones"
reference = "Somebody, Table 7"
seeds = 3
measures = ["rounds", "final test_accuracy"]

[common]
rounds = 4
evaluate_every = 1
availability = "everyone"
model = "logistic"
data = { name = "digits", num_clients = 10, alpha = 1.0 }

[algorithms.large]
algorithm = "fedavg"

[algorithms.small]
algorithm = "fedavg"
local.lr = 0.0001

[panels.plain]
title = "plain"
to_accuracy = 0.3
paper = { large = 2, small = 90 }

[panels.short]
title = "short"
to_accuracy = 0.3
rounds = 2
seeds = 1

[panels.missing]
title = "missing"
to_accuracy = 0.3
optional = true
data = "cifar10"

[[claims]]
text = "Large steps are faster"
order = ["large", "small"]
"""


@pytest.fixture(autouse=True)
def _declarations(tmp_path: Path) -> None:
    """The folder of declarations lies where the command line is called, as in a clone."""
    (tmp_path / "reproductions").symlink_to(Path(__file__).parents[2] / "reproductions")


@pytest.fixture
def made(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> Turnout:
    """Call ``turnout reproduce made.toml`` with the given arguments, in one process."""
    monkeypatch.setenv("TURNOUT_DATA", "nowhere")
    Path("made.toml").write_text(FILE)
    return lambda *arguments: turnout("reproduce", "made.toml", "--jobs", 1, *arguments)


def test_writes_figures_findings_and_files(made: Turnout) -> None:
    result = made("--jobs", 2)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("plain, 30 % large 2 ") and line.endswith(" 3/3") for line in lines)
    assert any(line.startswith("small 90 not reached") and line.endswith(" 0/3") for line in lines)
    assert "Large steps are faster plain undecided true of 3 of 3 seeds, one side never arrived 0.250" in lines
    assert "short undecided true of 1 of 1 seed, at least 3 are needed –" in lines
    assert lines[-2:] == ["runs and tables: runs/made", "report: runs/made/report.html"]
    assert "Large steps against small ones. Somebody, Table 7\n2 panels, 8 runs" in result.stderr
    assert "plain/large, seed 2: done, test accuracy" in result.stderr
    assert "not as declared" not in result.output
    with Path("runs/made/results.csv").open() as file:
        assert [row["seeds"] for row in csv.DictReader(file)] == ["3"] * 4 + ["1"] * 4
    findings = json.loads(Path("runs/made/findings.json").read_text())
    assert [finding["verdict"] for finding in findings["findings"]] == ["undecided", "undecided"]
    assert findings["changes"] == []
    assert "Somebody, Table 7" in Path("runs/made/report.html").read_text()
    records = load_records(["runs/made/plain"])
    assert [(record.algorithm, record.seed) for record in records] == [
        (name, seed) for name in ("large", "small") for seed in range(3)
    ]


def test_threads_apply_to_every_run(made: Turnout) -> None:
    assert made("--panels", "short", "--threads", 2, "--no-report").exit_code == 0
    found = [json.loads(path.read_text())["threads"] for path in Path("runs").rglob("environment.json")]
    assert found == [2, 2]


@pytest.mark.usefixtures("undrawn")
def test_subset_of_algorithms(made: Turnout) -> None:
    result = made("--algorithms", "small", "--rounds", 1)
    assert result.exit_code == 0, result.output
    assert sorted(path.parent.name for path in Path("runs/made").glob("*/*/seed-0")) == ["small", "small"]
    said = json.loads(Path("runs/made/findings.json").read_text())
    assert said["changes"] == ["1 round instead of 4", "1 round instead of 2", "only small"]
    assert {figure["algorithm"] for figure in said["figures"]} == {"small"}
    assert not said["findings"]  # the claim is about both
    assert made("--rounds", 1).exit_code == 0
    names = [record.algorithm for record in load_records(["runs/made/plain"])]
    assert sorted(set(names)) == ["large", "small"]


@pytest.mark.usefixtures("undrawn")
def test_panels_without_selected_algorithms_are_omitted(made: Turnout) -> None:
    Path("made.toml").write_text(FILE.replace('title = "short"', 'title = "short"\nonly = ["large"]'))
    assert made("--algorithms", "small", "--rounds", 1).exit_code == 0
    assert not Path("runs/made/short").exists()
    result = made("--algorithms", "small", "--panels", "short")
    assert result.exit_code == 2
    assert "panels: got ['short'], needed some of those with these algorithms: plain, missing" in result.stderr


def test_algorithm_of_an_optional_panel(made: Turnout) -> None:
    others = FILE.replace('"plain"', '"plain"\nonly = ["large"]').replace('"short"', '"short"\nonly = ["large"]')
    Path("made.toml").write_text(others.replace('data = "cifar10"', 'only = ["small"]'))
    result = made("--algorithms", "small", "--panels", "missing", "--rounds", 1, "--seeds", 1, "--no-report")
    assert result.exit_code == 0, result.output
    assert "without" not in result.stdout


@pytest.mark.usefixtures("undrawn")
def test_deviations_from_the_declaration_are_reported_everywhere(made: Turnout) -> None:
    result = made("--seeds", "0,5", "--rounds", 3, "--panels", "short", "local.steps=2", "to_accuracy=0.2")
    assert result.exit_code == 0, result.output
    said = "seeds 0,5 instead of 1 seed; 3 rounds instead of 2; local.steps=2; to_accuracy=0.2; without plain"
    assert f"not as declared: {said}" in result.stdout
    assert "short, 20 %" in result.stdout
    assert said in Path("runs/made/report.html").read_text()
    assert "; ".join(json.loads(Path("runs/made/findings.json").read_text())["changes"]) == said
    settings = json.loads(Path("runs/made/short/small/seed-5/settings.json").read_text())
    assert (settings["rounds"], settings["seed"], settings["local"]) == (3, 5, {"lr": 0.0001, "steps": 2})


def test_settings_of_one_algorithm_do_not_affect_others(made: Turnout) -> None:
    made("--panels", "short", "--no-report", "--rounds", 1, "small.local.lr=0.5", "--folder", "f")
    large, small = (json.loads(Path(f"f/short/{n}/seed-0/settings.json").read_text()) for n in ("large", "small"))
    assert ("local" in large, small["local"]) == (False, {"lr": 0.5})


def test_finished_runs_are_reused_and_unfinished_ones_resumed(made: Turnout, turnout: Turnout) -> None:
    made("--panels", "short", "--no-report")
    result = made("--panels", "short", "--no-report", "--rounds", 3, "--seeds", 2)
    assert result.exit_code == 0, result.output
    assert History.load("runs/made/short/large/seed-0").last_round == 3
    again = made("--panels", "short", "--no-report", "--rounds", 3, "--seeds", 2)
    assert again.stderr.count("was finished") == 4
    result = turnout("run", "--resume", "runs/made/short/small/seed-1", "--rounds", 4)
    assert result.exit_code == 0, result.output


def test_single_panel_has_no_subfolder(made: Turnout) -> None:
    start, end = FILE.index("[panels.short]"), FILE.index("[[claims]]")
    Path("made.toml").write_text(FILE[:start] + FILE[end:])
    result = made("--seeds", 1, "--rounds", 1, "--no-report")
    assert result.exit_code == 0, result.output
    assert Path("runs/made/large/seed-0/rounds.parquet").exists()
    assert "1 panel, 2 runs" in result.stderr
    assert "\nlarge, seed 0: done" in result.stderr


def test_missing_data_are_reported_at_the_start(made: Turnout) -> None:
    result = made("--panels", "missing,short")
    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert "Error: panel missing: data: cifar10: no folder holds" in told
    assert "`turnout data fetch cifar10`" in told
    assert "The others can run: --panels short" in told
    assert not Path("runs").exists()


def test_data_directory_can_be_given(made: Turnout) -> None:
    result = made("--panels", "missing", "--data-dir", "elsewhere")
    assert "looked in elsewhere/" in " ".join(result.stderr.split())
    assert os.environ["TURNOUT_DATA"] == "elsewhere", "processes that are started read it there"


def test_failing_run_is_named_and_the_others_reported(made: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Experiment.steps

    def fail(experiment: Experiment, *arguments: Any, **options: Any) -> Any:
        if experiment.algorithm.name == "small":
            raise ZeroDivisionError
        return steps(experiment, *arguments, **options)

    monkeypatch.setattr(Experiment, "steps", fail)
    result = made("--panels", "plain", "--rounds", 1)
    assert result.exit_code == 1
    assert "3 runs failed:\n  plain/small, seed 0: ZeroDivisionError" in result.stderr
    assert "not as declared: 1 round instead of 4; without short; 3 of 6 runs failed" in result.stdout
    assert Path("runs/made/report.html").exists()


def test_ctrl_c_explains_how_to_resume(made: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise Interrupted("stopped after round 1 of 2")

    monkeypatch.setattr(Experiment, "steps", stop)
    result = made("--panels", "short")
    assert result.exit_code == 130
    assert "stopped with 0 of 2 runs finished, all saved in runs/made. Resume with the same command" in result.stderr


def test_missing_report_packages_do_not_fail_the_reproduction(made: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = made("--panels", "short", "--rounds", 1)
    assert result.exit_code == 0
    assert "no report: " in result.stderr
    assert Path("runs/made/findings.json").exists()


def test_no_name_lists_reproductions_with_missing_data(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_DATA", "nowhere")
    result = turnout("reproduce")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    assert "fedau/digits" in shown
    assert "folb/figure-5 FOLB and FedProx with 2 and with 20 clients" in shown
    assert "turnout data fetch" in shown
    assert "maxfl/figure-3, figure-4" in shown  # which share their runs
    assert "maxfl/figure-5" in shown  # which has none


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fedau/digitz",), "unknown reproduction 'fedau/digitz': did you mean 'fedau/digits'?"),
        (("fedau/digits", "folb/table-1"), "name one reproduction, got fedau/digits folb/table-1: turnout reproduce"),
        (("local.lr=1",), "name one reproduction, got settings only: turnout reproduce"),
        (("fedau/digits", "--panels", "digit"), "unknown panel 'digit': did you mean 'digits'?"),
        (("fedau/digits", "--algorithms", "fedaux"), "unknown algorithm 'fedaux': did you mean 'fedau'?"),
        (("fedau/digits", "--algorithms", ","), "algorithms: got ',', needed names: fedau,"),
        (("fedau/digits", "--seeds", "none"), "seeds: got 'none', needed how many, as in 5, or which, as in 0,3,7"),
        (("fedau/digits", "seed=3"), "seed is not for reproductions: write --seeds"),
        (("fedau/digits", "algorithm=mifa"), "algorithm is not for reproductions: write NAME.OPTION=VALUE"),
        (("fedau/digits", "name=x"), "name is not for reproductions: write NAME.OPTION=VALUE"),
        (("fedau/digits", "to_accuracy=70"), "to_accuracy: got 70, needed a share of the examples"),
        (("fedau/digits", "fedau.cutof=1"), "unknown option 'algorithm.cutof' of fedau: did you mean 'cutoff'?"),
        (("fedau/digits", "local.lr=-1"), "local.lr: got -1"),
        (("fedau/digits", "--jobs", "0"), "jobs: got 0, needed a whole number >= 1"),
        (("fedau/digits", "--threads", "0"), "threads: got 0, needed a whole number >= 1"),
    ],
)
def test_invalid_usage_prints_one_line(arguments: tuple[str, ...], message: str, turnout: Turnout) -> None:
    result = turnout("reproduce", *arguments)
    assert result.exit_code == 2
    assert f"Error: {message}" in result.stderr
    assert not Path("runs").exists()


def test_figure_without_runs_is_drawn_immediately(turnout: Turnout) -> None:
    result = turnout("reproduce", "maxfl/figure-6")
    assert result.exit_code == 0, result.output
    assert "clients within 0.5 of the model" in result.stdout
    assert result.stdout.endswith("figure: runs/maxfl-figure-6/figure-6.png\n")
    assert "Mean estimation with three clients" in result.stderr
    assert Path("runs/maxfl-figure-6/figure-6.png").read_bytes().startswith(b"\x89PNG")
    written = sorted(path.name for path in Path("runs/maxfl-figure-6").iterdir())
    assert written == ["figure-6.png", "findings.json", "results.csv"]
    for given in ("local.lr=0.1", "--rounds=3"):
        refused = turnout("reproduce", "maxfl/figure-6", given)
        assert refused.exit_code == 2
        said = " ".join(refused.stderr.split())
        assert "maxfl/figure-6 is computed without runs and has no settings: leave " in said


def test_folder_without_declarations_is_refused(turnout: Turnout) -> None:
    Path("reproductions").unlink()
    result = turnout("reproduce", "fedau/digits")
    assert result.exit_code == 2
    assert "there is no declaration below" in result.stderr
    assert "name a TOML file, or a folder of them with --declarations" in " ".join(result.stderr.split())
    Path("mine/paper").mkdir(parents=True)
    Path("mine/paper/made.toml").write_text(FILE)
    Path("mine/paper/settings.toml").write_text("rounds = 3")
    assert "paper/made" in turnout("reproduce", "--declarations", "mine").stdout
    result = turnout("reproduce", "paper/settings", "--declarations", "mine")
    assert "unknown reproduction 'paper/settings'" in result.stderr
    Path("mine/paper/broken.toml").write_text("rounds = ")
    result = turnout("reproduce", "paper/broken", "--declarations", "mine")
    assert "cannot be read as a TOML file" in " ".join(result.stderr.split())
    Path("mine/paper/broken.toml").write_text('title = "x"\nreference = "y"\nfigure = 3\n')
    result = turnout("reproduce", "paper/broken", "--declarations", "mine")
    assert "figure: got 3, needed a text" in result.stderr
