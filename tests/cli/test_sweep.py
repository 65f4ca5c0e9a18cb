"""``turnout sweep``."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnout.cli.sweep import grid_of
from turnout.comparison.folders import load_records
from turnout.core.checks import ConfigurationError
from turnout.experiment import Experiment
from turnout.simulation.running import Interrupted

Turnout = Callable[..., Any]


@pytest.mark.usefixtures("undrawn")
def test_every_point_runs_and_the_best_is_printed(turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout(
        "sweep", "--algorithm", "fedavg", "--grid", "local.lr=0.0001,0.1", "-g", "also.prox.mu=0,1", "--seeds", 2,
        "--rounds", 3, "--every", 1, "--jobs", 2, *small,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[-4:-2] == ["runs and tables: runs/sweep-digits", "report: runs/sweep-digits/report.html"]
    assert re.fullmatch(r"test accuracy \(%\) of the best: \d+\.\d", lines[-2])
    assert lines[-1].startswith("best: local.lr=0.1 also.prox.mu=")
    assert "4 points, 2 seeds on digits" in result.stderr
    assert "lr-0.1_mu-1, seed 1: done, validation accuracy" in result.stderr
    with Path("runs/sweep-digits/results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["local.lr"], row["also.prox.mu"], row["seed"]) for row in rows] == [
        (lr, mu, seed) for lr in ("0.0001", "0.1") for mu in ("0", "1") for seed in "01"
    ]
    assert "best: local.lr" not in Path("runs/sweep-digits/report.html").read_text()
    assert "Best by validation accuracy (%): local.lr=0.1" in Path("runs/sweep-digits/report.html").read_text()
    settings = json.loads(Path("runs/sweep-digits/lr-0.1_mu-1/seed-1/settings.json").read_text())
    assert (settings["name"], settings["local"], settings["also"]) == ("lr-0.1_mu-1", {"lr": 0.1}, {"prox": {"mu": 1}})
    assert settings["algorithm"] == {"name": "fedavg"}


def test_settings_of_several_algorithms_need_the_name_of_one(turnout: Turnout, small: Sequence[str]) -> None:
    Path("several.toml").write_text("rounds = 2\n[algorithms.fedavg]\n[algorithms.mifa]\n")
    command = ("sweep", "--config", "several.toml", "--grid", "local.lr=0.01,0.1", "--print-config", *small)
    result = turnout(*command)
    assert result.exit_code == 2
    assert "the settings are for several algorithms: add --algorithm fedavg|mifa" in result.stderr
    assert 'name = "mifa"' in turnout(*command, "--algorithm", "mifa").stdout


def test_threads_apply_to_every_run(turnout: Turnout, small: Sequence[str]) -> None:
    command = ("sweep", "--grid", "local.lr=0.01,0.1", "--seeds", 1, "--rounds", 2, "--jobs", 1, "--no-report", *small)
    assert turnout(*command, "--threads", 2).exit_code == 0
    found = [json.loads(path.read_text())["threads"] for path in Path("runs").rglob("environment.json")]
    assert found == [2, 2]


def test_points_share_data_and_participation(turnout: Turnout, small: Sequence[str]) -> None:
    turnout("sweep", "--grid", "local.lr=0.01,0.1", "--seeds", 1, "--rounds", 3, "--jobs", 1, "--no-report", *small)
    one, other = load_records(["runs/sweep-digits"])
    assert one.history.participation == other.history.participation
    assert one.history.clients["num_examples"] == other.history.clients["num_examples"]


def test_command_line_precedes_the_grid_of_a_file(turnout: Turnout, small: Sequence[str]) -> None:
    Path("mine.toml").write_text(
        "seeds = 1\nrounds = 3\nto_accuracy = 0.05\nevaluate_every = 1\n[grid]\nlocal.lr = [0.1, 0.2]\n"
        '"model.name" = ["logistic", "mlp"]\n'
    )
    command = ("sweep", "--config", "mine.toml", "--grid", "local.lr=0.3", "--jobs", 1, "--no-report", *small[2:])
    result = turnout(*command)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in Path("runs/mine").iterdir() if path.is_dir()) == [
        "lr-0.3_name-logistic",
        "lr-0.3_name-mlp",
    ]
    assert "rounds" in result.stdout
    again = turnout(*command)
    assert again.stderr.count("was finished") == 2


def test_lists_are_written_in_brackets(turnout: Turnout) -> None:
    result = turnout(
        "sweep", "--grid", "model.hidden=[4],[8,4]", "--seeds", 1, "--rounds", 1, "--jobs", 1, "--no-report",
        "data.num_clients=10", "data.alpha=1",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    sizes = [r.config["model"]["hidden"] for r in load_records(["runs/sweep-digits"])]
    assert sizes == [[4], [8, 4]]


def test_algorithms_as_an_axis_have_one_best_point_each(turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout(
        "sweep", "--grid", "algorithm=fedavg,mifa", "--grid", "local.lr=0.0001,0.1", "--metric", "train_loss", "--seeds", 1,
        "--rounds", 3, "--jobs", 1, "--no-report", *small,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "best of fedavg: algorithm=fedavg local.lr=0.1, " in result.stdout
    assert "best of mifa: algorithm=mifa local.lr=0.1, " in result.stdout
    records = load_records(["runs/sweep-digits"])
    assert records[0].algorithm == "algorithm-fedavg_lr-0.0001"
    kinds = [json.dumps(record.config["algorithm"]) for record in records]
    assert ["Mifa" in kind for kind in kinds] == [False, False, True, True]


def test_failing_run_is_named_and_the_others_reported(
    turnout: Turnout, small: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Experiment.steps

    def fail(experiment: Experiment, *arguments: Any, **options: Any) -> Any:
        if experiment.algorithm.name == "lr-0.2":
            raise ZeroDivisionError
        return steps(experiment, *arguments, **options)

    monkeypatch.setattr(Experiment, "steps", fail)
    result = turnout("sweep", "--grid", "local.lr=0.1,0.2", "--seeds", 1, "--rounds", 1, "--jobs", 1, *small)
    assert result.exit_code == 1
    assert "lr-0.2, seed 0: ZeroDivisionError" in result.stderr
    assert "best: local.lr=0.1" in result.stdout


def test_ctrl_c_explains_how_to_resume(turnout: Turnout, small: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise Interrupted("stopped")

    monkeypatch.setattr(Experiment, "steps", stop)
    result = turnout("sweep", "--grid", "local.lr=0.1,0.2", "--seeds", 1, "--jobs", 1, *small)
    assert result.exit_code == 130
    assert "stopped with 0 of 2 runs finished, all saved in runs/sweep-digits. Resume with the same" in result.stderr


def test_unreached_target_has_no_best_point(turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout(
        "sweep", "--grid", "local.lr=0.1,0.2", "--seeds", 1, "--rounds", 1, "--jobs", 1, "--to-accuracy", 1, *small
    )
    assert "not reached" in result.stdout
    assert "no point of the grid has a finite figure of rounds" in result.stderr
    assert Path("runs/sweep-digits/results.csv").exists()


def test_axes_are_read_from_text_and_tables() -> None:
    assert grid_of([], ["local.lr=0.01, 0.1", "a=[1,2],[3]", 'b={k="x,y", n=1},none', "c='p,q',r"]) == {
        "local.lr": [0.01, 0.1],
        "a": [[1, 2], [3]],
        "b": [{"k": "x,y", "n": 1}, "none"],
        "c": ["p,q", "r"],
    }
    assert grid_of([{"local": {"lr": [1, 2]}, "also.prox.mu": [3]}, {}], ["local.lr=5"]) == {
        "local.lr": [5],
        "also.prox.mu": [3],
    }
    with pytest.raises(
        ConfigurationError, match=r"grid local.lr: got 0.1, needed a list of values, such as \[0.01, 0.1\]"
    ):
        grid_of([{"local": {"lr": 0.1}}], [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name at least one axis: turnout sweep --grid local.lr=0.01,0.1"),
        (("--grid", "local.lr"), "--grid 'local.lr': needed a setting and its values, such as local.lr=0.01,0.1"),
        (("--grid", "local.lr="), "grid local.lr: got [], needed a list of values"),
        (("--grid", "seed=1,2"), "seed cannot be an axis of a grid; --seeds sets seeds"),
        (("--grid", "local.lr=1,1"), "grid: two points are called lr-1: give each value once"),
        (("--grid", "local.lr=0.1,-1"), "local.lr=-1: local.lr: got -1"),
        (("--grid", "local.lrr=1"), "local.lrr=1: unknown option 'local.lrr'"),
        (("--grid", "algorithm=fedau,mifaa"), "algorithm=mifaa: unknown algorithm 'mifaa'"),
        (("--grid", "data.num_clients=0"), "data.num_clients: got 0"),
        (("--grid", "local.lr=1", "--metric", "rounds"), "metric: rounds needs to_accuracy"),
        (("--grid", "local.lr=1", "--to-accuracy", "70"), "to_accuracy: got 70.0, needed a share"),
        (("--grid", "local.lr=1", "--threads", "0"), "threads: got 0, needed a whole number >= 1"),
        (("--grid", "local.lr=1", "--jobs", "0"), "jobs: got 0, needed a whole number >= 1"),
        (("--grid", "local.lr=1", "--seeds", "x"), "seeds: got 'x', needed how many"),
    ],
)
def test_invalid_usage_prints_one_line(arguments: tuple[str, ...], message: str, turnout: Turnout) -> None:
    result = turnout("sweep", "--rounds", 1, *arguments)
    assert result.exit_code == 2
    assert f"Error: {message}" in result.stderr
    assert not Path("runs").exists()


@pytest.mark.usefixtures("undrawn")
def test_search_prints_best_trials_and_resumes(turnout: Turnout, small: Sequence[str]) -> None:
    command = (
        "sweep", "--algorithm", "fedavg", "-g", "local.lr=0.0001..1:log", "-g", "local.steps=1..3", "-g",
        "also.prox.mu=0,0.1", "--sampler", "random", "--trials-at-once", 2, "--seeds", 1, "--rounds", 2, "--jobs", 1, *small,
    )  # fmt: skip
    result = turnout(*command, "--trials", 2)
    assert result.exit_code == 0, result.output
    assert "2 trials, 1 seed on digits" in result.stderr
    assert next(line for line in result.stdout.splitlines() if line.startswith("best: ")).startswith("best: local.lr=")
    with Path("runs/search-digits/results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["trial"], row["seed"]) for row in rows] == [("0", "0"), ("1", "0")]
    settings = json.loads(Path("runs/search-digits/trial-1/seed-0/settings.json").read_text())
    assert settings["local"] == {"lr": float(rows[1]["local.lr"]), "steps": int(rows[1]["local.steps"])}
    again = turnout(*command, "--trials", 3)
    assert again.stderr.count("done, validation accuracy") == 1
    assert "10 trials" not in again.output
    changed = turnout(*command[:-1], "local.lr=0.1", "--trials", 3, "--metric", "train_loss")
    assert changed.exit_code != 0
    assert "holds a search with metric" in changed.output


@pytest.mark.parametrize(
    ("grid", "flags", "message"),
    [
        ("local.lr=0.1..1", [], "local.lr: a range has no end of combinations: say how many to try, as in --trials 30"),
        ("local.lr=1..0.1", ["--trials", 3], "range: got '1..0.1', needed the least number first"),
        ("local.lr=-1..1", ["--trials", 3], "local.lr=-1: local.lr: got -1.0, needed a finite number > 0"),
        ("local.lr=0.1..1", ["--trials", 0], "trials: got 0"),
        ("local.lr=0.1..1", ["--trials", 3, "--sampler", "best"], "unknown sampler 'best'"),
    ],
)
def test_invalid_searches_are_refused_at_the_start(turnout: Turnout, grid: str, flags: list, message: str) -> None:
    result = turnout("sweep", "--grid", grid, *flags, "data.num_clients=10", "data.alpha=1")
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not list(Path().rglob("rounds.parquet"))


@pytest.mark.parametrize(
    ("options", "fraction", "by_test"),
    [
        ((), 0.1, False),
        (("data.validation_fraction=0.25",), 0.25, False),
        (("data.validation_fraction=0",), 0, True),
        (("--metric", "test_accuracy"), None, True),
        (("--metric", "test_loss"), None, True),
        (("--metric", "average test_loss", "data.validation_fraction=0.25"), 0.25, True),
        (("--metric", "validation_loss", "data.validation_fraction=0.25"), 0.25, False),
        (("--to-accuracy", "0.01"), 0.1, False),
        (("--to-accuracy", "0.01", "data.validation_fraction=0"), 0, True),
        (("--metric", "train_loss"), None, False),
    ],
)
def test_selection_uses_validation_by_default(
    turnout: Turnout, small: Sequence[str], options: tuple[str, ...], fraction: float | None, by_test: bool
) -> None:
    command = ("sweep", "--grid", "local.lr=0.1,0.2", "--seeds", 1, "--rounds", 1, "--jobs", 1)
    result = turnout(*command, *small, *options)
    assert result.exit_code == 0, result.output
    settings = json.loads(Path("runs/sweep-digits/lr-0.1/seed-0/settings.json").read_text())
    assert settings["data"].get("validation_fraction") == fraction
    assert ("chosen by test examples" in result.stderr) is by_test
    assert ("chosen by test examples" in Path("runs/sweep-digits/report.html").read_text()) is by_test
    by_validation = fraction not in (None, 0) and not by_test and "--to-accuracy" not in options
    assert ("of the best: " in result.stdout) is by_validation
