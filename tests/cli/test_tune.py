"""``turnout compare --tune``, and the comparison that a sweep writes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnout.cli.settings import Settings
from turnout.cli.tune import Candidate

Turnout = Callable[..., Any]
ROUNDS = ("--rounds", 6, "--every", 6, "--jobs", 1, "--quiet")


def test_tuned_comparison_is_that_of_the_written_file(turnout: Turnout, small: Sequence[str]) -> None:
    names = ("fedau", "average_participating")
    done = turnout("compare", *names, "--seeds", 2, "--tune", 300, *ROUNDS, "--folder", "runs/tuned", *small)
    assert done.exit_code == 0, done.output
    assert "chosen (searched range)" in done.stdout
    assert "turnout compare --config runs/tuned/tuned.toml" in done.stderr
    choices = json.loads(Path("runs/tuned/tuned.json").read_text())
    file = tomllib.loads(Path("runs/tuned/tuned.toml").read_text())
    assert file["seeds"] == [0, 1]
    assert "validation_fraction" not in file["data"]
    for name in names:
        settings = json.loads(Path(f"runs/tuned/{name}/seed-0/settings.json").read_text())
        assert settings["local"]["lr"] == choices[name]["values"]["local.lr"]
        assert settings["algorithm"]["server_lr"] == choices[name]["values"]["algorithm.server_lr"]
    searched = {path.parent.name for path in Path("runs/tuned-tuning").rglob("config.json")}
    assert searched == {"seed-100", "seed-101", "seed-102"}
    page = Path("runs/tuned/report.html").read_text()
    assert "<h2 id" in page
    assert ">Tuning</h2>" in page
    assert f"{choices['fedau']['updates']:,}" in page
    reported = turnout("report", "runs/tuned", "--output", "later.html")
    assert reported.exit_code == 0, reported.output
    assert ">Tuning</h2>" in Path("later.html").read_text()
    assert f"{choices['fedau']['updates']:,}" in Path("later.html").read_text()
    again = turnout("compare", "--config", "runs/tuned/tuned.toml", "--folder", "runs/again", "--jobs", 1, "--quiet")
    assert again.exit_code == 0, again.output
    for run in Path("runs/tuned").rglob("rounds.parquet"):
        other = Path("runs/again") / run.relative_to("runs/tuned")
        assert _accuracy(other) == _accuracy(run)
    assert ">Tuning</h2>" not in Path("runs/again/report.html").read_text()


def _accuracy(path: Path) -> list[float]:
    import pyarrow.parquet as pq

    return pq.read_table(path)["test_accuracy"].to_pylist()


def test_same_command_goes_on_with_a_tuned_comparison(turnout: Turnout, small: Sequence[str]) -> None:
    command = ("compare", "fedavg", "--seeds", 1, "--tune", 10, *ROUNDS, "--no-report", *small)
    first, again = turnout(*command), turnout(*command)
    assert first.exit_code == again.exit_code == 0, again.output
    assert again.stdout == first.stdout
    other = turnout(*command[:1], "mifa", *command[2:])
    assert other.exit_code == 0, other.output
    assert {path.parent.parent for path in Path("runs").rglob("seed-0")} == {
        Path("runs/tuned-digits"), Path("runs/tuned-digits-2"),
    }  # fmt: skip


def test_seeds_of_the_search_are_never_those_of_the_comparison(turnout: Turnout, small: Sequence[str]) -> None:
    done = turnout("compare", "fedavg", "--seeds", "100,102", "--tune", 10, *ROUNDS, "--no-report", *small)
    assert done.exit_code == 0, done.output
    searched = {path.parent.name for path in Path("runs/tuned-digits-tuning").rglob("config.json")}
    assert searched == {"seed-101", "seed-103", "seed-104"}


@pytest.mark.parametrize(
    ("rule", "axes"),
    [
        ("fedau", {"local.lr": (0.1, 0.2, 0.4), "algorithm.server_lr": (0.5, 1.0, 2.0)}),
        ("fedadam", {"local.lr": (0.1, 0.2, 0.4), "algorithm.server_lr": (0.005, 0.01, 0.02)}),
    ],
)
def test_range_begins_around_the_settings(rule: str, axes: dict[str, tuple[float, ...]]) -> None:
    settings = Settings.of({"algorithm": {"name": rule}, "local": {"lr": 0.2}})
    assert Candidate(settings).axes == axes


def test_trials_hold_out_a_fifth_unless_the_settings_hold_out_others() -> None:
    data = {"num_clients": 10, "alpha": 1}
    one = Candidate(Settings.of({"data": data}))(100, **{"local.lr": 0.2})
    assert one.data.recipe["validation_fraction"] == 0.2
    other = Candidate(Settings.of({"data": {**data, "validation_fraction": 0.4}}))(100)
    assert other.data.recipe["validation_fraction"] == 0.4


def test_comparison_without_step_sizes_cannot_be_tuned(turnout: Turnout, small: Sequence[str]) -> None:
    words = ('local.lr={kind="inverse_root",initial=0.1}', 'fedavg.server_lr={kind="inverse_root",initial=1}')
    done = turnout("compare", "fedavg", "--tune", 10, *ROUNDS, *small, *words)
    assert done.exit_code != 0
    assert "fedavg: there is no step size to tune: write local.lr=0.1, a number above 0" in done.output


def test_sweep_writes_the_comparison_of_the_best_points(turnout: Turnout, small: Sequence[str]) -> None:
    done = turnout(
        "sweep", "--grid", "algorithm=fedau,mifa", "--grid", "local.lr=0.0001,0.1", "--seeds", 2, *ROUNDS, "--no-report",
        *small,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "turnout compare --config runs/sweep-digits/best.toml" in done.stderr
    file = tomllib.loads(Path("runs/sweep-digits/best.toml").read_text())
    assert file["seeds"] == [2, 3, 4, 5, 6]  # those of the sweep chose
    assert set(file["algorithms"]) == {"fedau", "mifa"}
    assert "validation_fraction" not in file["data"] or not file["data"]["validation_fraction"]
    best = dict(
        line.split("best of ")[1].split(": ") for line in done.stdout.splitlines() if line.startswith("best of")
    )
    for name, point in best.items():
        own = {**file.get("local", {}), **file["algorithms"][name].get("local", {})}
        assert f"local.lr={own['lr']:g}" in point
    compared = turnout("compare", "--config", "runs/sweep-digits/best.toml", "--seeds", 1, *ROUNDS, "--no-report")
    assert compared.exit_code == 0, compared.output
