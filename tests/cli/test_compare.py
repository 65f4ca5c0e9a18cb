"""``turnout compare``."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnout.comparison.folders import load_records
from turnout.experiment import Experiment
from turnout.record.query import History
from turnout.simulation.running import Interrupted

Turnout = Callable[..., Any]

FILE = """
rounds = 4
seeds = 2
data = {num_clients = 10, alpha = 1.0}
model = "logistic"
availability = {mean = 0.5}

[algorithms.fedau]
[algorithms.fedau_inf]
algorithm = "fedau"
cutoff = "none"
[algorithms.average_all]
server_lr = 10
"""


def test_settings_file_is_compared_with_table_and_report(turnout: Turnout) -> None:
    Path("small.toml").write_text(FILE)
    result = turnout("compare", "--config", "small.toml", "--jobs", 2)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    names = ["fedau", "fedau_inf", "average_all"]
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in names] == names
    assert "mean ± standard deviation over 2 seeds" in result.stdout
    assert lines[-2:] == ["runs and tables: runs/small", "report: runs/small/report.html"]
    assert "fedau_inf" in Path("runs/small/report.html").read_text()
    with Path("runs/small/results.csv").open() as file:
        assert [row["algorithm"] for row in csv.DictReader(file)] == names
    records = load_records(["runs/small"])
    assert [(record.algorithm, record.seed) for record in records] == [
        (name, seed) for name in names for seed in (0, 1)
    ]
    assert "3 algorithms, 2 seeds on digits: 10 clients" in result.stderr
    assert "fedau_inf, seed 1: done, test accuracy" in result.stderr


@pytest.mark.usefixtures("undrawn")
def test_rounds_to_a_target_accuracy_are_shown(turnout: Turnout, small: Sequence[str]) -> None:
    Path("small.toml").write_text("to_accuracy = 0.99\nrounds = 4\nseeds = 2\nevaluate_every = 1\n[algorithms.fedavg]")
    command = ("compare", "--config", "small.toml", "--jobs", 1, "--folder", "c", *small)
    result = turnout(*command)
    assert result.exit_code == 0, result.output
    assert "until test accuracy 99 %" in result.stdout
    assert "not reached" in result.stdout
    assert "until test accuracy 99 %" in Path("c/report.html").read_text()
    result = turnout(*command, "--to-accuracy", 0.05, "--no-report")
    assert result.stderr.count("was finished") == 2, "another target needs no other run"
    records = load_records(["c"])
    first = [record.history.reached("test_accuracy", 0.05) for record in records]
    assert None not in first
    with Path("c/results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["reached"] == "2"
    assert float(row["bytes_to_target_median"]) == sum(reached.bytes for reached in first) / 2  # type: ignore[union-attr]


def test_algorithms_share_data_and_participation_of_a_seed(turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout("compare", "fedau", "mifa", "--seeds", 2, "--rounds", 6, "--jobs", 1, "--no-report", *small)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("runs and tables: runs/compare-digits\n")
    histories = {(r.algorithm, r.seed): r.history for r in load_records(["runs/compare-digits"])}
    for seed in (0, 1):
        one, other = histories["fedau", seed], histories["mifa", seed]
        assert one.participation == other.participation
        assert one.clients["num_examples"] == other.clients["num_examples"]
    assert histories["mifa", 0].participation != histories["mifa", 1].participation


def test_finished_runs_are_reused_and_unfinished_ones_resumed(turnout: Turnout, small: Sequence[str]) -> None:
    command = ("compare", "fedau", "fedavg", "--jobs", 1, "--no-report", "--folder", "c", *small)
    turnout(*command, "--seeds", 1, "--rounds", 3)
    before = Path("c/fedau/seed-0/rounds.parquet").stat().st_mtime_ns
    result = turnout(*command, "--seeds", "0,5", "--rounds", 3)
    assert "fedau, seed 0: done, was finished" in result.stderr
    assert "fedau, seed 5: done, test accuracy" in result.stderr
    assert Path("c/fedau/seed-0/rounds.parquet").stat().st_mtime_ns == before
    turnout(*command, "--seeds", 1, "--rounds", 5)
    assert History.load("c/fedau/seed-0").last_round == 5
    assert History.load("c/fedau/seed-5").last_round == 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_threads_apply_to_every_run(jobs: int, turnout: Turnout, small: Sequence[str]) -> None:
    command = ("compare", "fedau", "mifa", "--seeds", 1, "--rounds", 2, "--no-report", "--jobs", jobs, *small)
    assert turnout(*command, "--threads", 2).exit_code == 0
    found = [json.loads(path.read_text())["threads"] for path in Path("runs").rglob("environment.json")]
    assert found == [2, 2]


def test_run_of_a_comparison_can_be_read_like_any_other(turnout: Turnout, small: Sequence[str]) -> None:
    turnout("compare", "mifa", "--seeds", "3,", "--rounds", 3, "--jobs", 1, "--no-report", "--folder", "c", *small)
    result = turnout("run", "--resume", "c/mifa/seed-3", "--rounds", 4)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("after 4 rounds\n")


def test_settings_of_one_algorithm_do_not_affect_others(turnout: Turnout, small: Sequence[str]) -> None:
    turnout(
        "compare", "fedau", "average_all", "--seeds", 1, "--rounds", 1, "--jobs", 1, "--no-report", "--folder", "c",
        *small, "average_all.server_lr=10", "local.lr=0.5", "fedau.local.lr=0.25",
    )  # fmt: skip
    one, other = (json.loads(Path(f"c/{n}/seed-0/settings.json").read_text()) for n in ("fedau", "average_all"))
    assert (one["algorithm"], one["local"]) == ({"name": "fedau"}, {"lr": 0.25})
    assert (other["algorithm"], other["local"]) == ({"name": "average_all", "server_lr": 10}, {"lr": 0.5})


@pytest.mark.usefixtures("undrawn")
def test_failing_run_is_named_and_exit_code_is_1(turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout(
        "compare", "fedau", "fedavg", "--seeds", 1, "--rounds", 6, "--jobs", 1, "--folder", "c", *small,
        "--availability", "everyone", "fedau.local.lr=3e38",
    )  # fmt: skip
    assert result.exit_code == 1
    assert "1 run failed:\n  fedau, seed 0: " in result.stderr
    assert "fedavg" in result.stdout
    assert Path("c/report.html").exists()


def test_ctrl_c_explains_how_to_resume(turnout: Turnout, small: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise Interrupted("stopped after round 1 of 2")

    monkeypatch.setattr(Experiment, "steps", stop)
    result = turnout("compare", "fedau", "mifa", "--seeds", 1, "--rounds", 2, "--jobs", 1, "--folder", "c", *small)
    assert result.exit_code == 130
    assert "stopped with 0 of 2 runs finished, all saved in c. Resume with the same command" in result.stderr


@pytest.mark.usefixtures("undrawn")
def test_missing_report_packages_do_not_fail_the_comparison(
    turnout: Turnout, small: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = turnout("compare", "fedau", "--seeds", 1, "--rounds", 1, "--jobs", 1, "--folder", "c", *small)
    assert result.exit_code == 0
    assert "no report: " in result.stderr
    assert "'.[report]' in a clone of turnout" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name what to compare: turnout compare fedau average_participating"),
        (("fedau", "fedau"), "an algorithm is named twice: fedau fedau. Two variants need two names"),
        (("fedau", "name=x"), "name is not for comparisons: write [algorithms.NAME] algorithm = ..."),
        (("fedau", "seed=3"), "seed is not for comparisons: write seeds"),
        (("fedau", "algorithm=mifa"), "algorithm is not for comparisons: write the names of algorithms"),
        (("fedau", "algorithm.name=mifa"), "algorithm is not for comparisons: write the names of algorithms"),
        (("fedau", "algorithm=3"), "algorithm: got 3, needed a name or a table"),
        (("fedau", "--seeds", "none"), "seeds: got 'none', needed how many, as in 5, or which, as in 0,3,7"),
        (("fedau", "mifaa"), "unknown algorithm 'mifaa': did you mean 'mifa'?"),
        (("fedau", "mifa.server_lr=1"), "unknown setting 'mifa'"),
        (
            ("fedau", "--to-accuracy", "70"),
            "to_accuracy: got 70.0, needed a share of the examples, 0 < accuracy <= 1. Write",
        ),
        (("fedau", "to_accuracy=high"), "to_accuracy: got 'high', needed a share of the examples"),
        (("fedau", "--jobs", "0"), "jobs: got 0, needed a whole number >= 1"),
        (
            ("fedau", "--jobs", "2", "--on", "processes:2"),
            "--jobs is for processes of this machine, and --on for an executor",
        ),
        (
            ("fedau", "output_dir=runs/a"),
            "unknown setting 'output_dir': it is no part of an experiment: write --folder runs/a on",
        ),
        (
            ("fedau", "checkpoint_every=10"),
            "unknown setting 'checkpoint_every': it is no part of an experiment: write --checkpoint-every 10",
        ),
        (("fedau", "num_rounds=3"), "unknown setting 'num_rounds': did you mean rounds=3?"),
        (("fedau", "learning_rate=0.1"), "unknown setting 'learning_rate': did you mean local.lr=0.1?"),
        (("fedau", "local.learning_rate=0.1"), "unknown option 'local.learning_rate' of Sgd: did you mean 'lr'?"),
        (("fedau", "fraction_train=0.1"), "unknown setting 'fraction_train': did you mean"),
        (("fedau", "fedau.cutof=1"), "unknown option 'algorithm.cutof' of fedau: did you mean 'cutoff'?"),
    ],
)
def test_invalid_usage_prints_one_line(arguments: tuple[str, ...], message: str, turnout: Turnout) -> None:
    result = turnout("compare", "--rounds", 1, *arguments)
    assert result.exit_code == 2
    assert f"Error: {message}" in result.stderr
    assert not Path("runs").exists()


def test_folder_with_other_runs_is_refused_at_the_start(turnout: Turnout, small: Sequence[str]) -> None:
    command = ("compare", "fedau", "--jobs", 1, "--no-report", "--folder", "c", "--rounds", 2, *small)
    turnout(*command, "--seeds", "1,")
    result = turnout(*command, "--seeds", 2, "local.lr=0.5")
    assert result.exit_code == 2
    assert "c/fedau/seed-1 holds another experiment (there, and here): algorithm.local.lr: 0.1 and 0.5" in result.stderr
    assert not Path("c/fedau/seed-0/rounds.parquet").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "fedau", "mifa", "selection.name=uniform", "selection.cohort_size=99"),
        ("sweep", "--grid", "local.lr=0.1,0.2", "selection.name=uniform", "selection.cohort_size=99"),
        ("sweep", "--grid", "local.lr=0.1..0.2", "--trials", "2", "selection.name=uniform", "selection.cohort_size=99"),
    ],
)
def test_refused_comparison_creates_no_folder(command: Sequence[str], turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout(*command, "--seeds", 1, "--rounds", 1, "--jobs", 1, *small)
    assert result.exit_code == 2
    assert "cohort_size: got 99" in result.stderr
    assert not list(Path().iterdir())


def test_other_comparisons_get_folders_with_numbers(turnout: Turnout, small: Sequence[str]) -> None:
    def folder_of(*words: str) -> str:
        done = turnout("compare", *words, "--seeds", 1, "--rounds", 2, "--jobs", 1, "--quiet", "--no-report", *small)
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()[-1].removeprefix("runs and tables: ")

    assert folder_of("fedau", "mifa") == "runs/compare-digits"
    assert folder_of("fedavg") == "runs/compare-digits-2", "other algorithms"
    assert folder_of("fedau", "local.lr=0.3") == "runs/compare-digits-3", "other settings"
    assert folder_of("fedavg") == "runs/compare-digits-2", "the same command goes on with its own runs"


def test_refused_comparison_changes_no_settings(turnout: Turnout, small: Sequence[str]) -> None:
    command = ("compare", "fedau", "fedavg", "--seeds", 1, "--jobs", 1, "--no-report", "--folder", "c", *small)
    assert turnout(*command, "--rounds", 1).exit_code == 0
    before = Path("c/fedau/seed-0/settings.json").read_bytes()
    refused = turnout(*command, "--rounds", 2, "fedavg.local.lr=0.5")
    assert refused.exit_code == 2
    assert "holds another experiment" in refused.stderr
    assert Path("c/fedau/seed-0/settings.json").read_bytes() == before
