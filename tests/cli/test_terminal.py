"""Output on a terminal, in a pipe and in a log file."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import turnout as to
from turnout.comparison.display import display
from turnout.comparison.update import Update
from turnout.reporting.progress import Notes, Progress

Turnout = Callable[..., Any]
BROKEN = ("local.lr=1e38", "--availability", "everyone", "--model", "logistic", "data.num_clients=4", "data.alpha=10")


def plain(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, markup=False, emoji=False)


def written(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_without_a_terminal_progress_is_printed_by_tenths_or_minutes(monkeypatch) -> None:
    now, console = [0.0], plain()
    monkeypatch.setattr("turnout.reporting.progress.time.monotonic", lambda: now[0])
    progress = Progress(console)
    progress.on_start({"rounds": 100}, None)
    for done in range(1, 101):
        now[0] += 61.0 if done == 35 else 0.1
        progress.on_round({"round": done, "test_accuracy": done / 100})
    progress.on_end({})
    lines = written(console)
    assert [int(line.split()[1]) for line in lines] == [10, 20, 30, 35, 40, 50, 60, 70, 80, 90, 100]
    assert lines[-1] == "round 100 of 100, test accuracy 100.0%, 71 s"


def test_long_comparison_without_a_terminal_prints_every_minute(monkeypatch) -> None:
    now, console = [0.0], plain()
    monkeypatch.setattr("turnout.comparison.display.time.monotonic", lambda: now[0])
    with display(2, True, console) as tell:
        for done in range(1, 4):
            now[0] += 31.0
            tell(Update("fedau", 0, "running", done, 9))
        tell(Update("fedau", 0, "stopped", 3, 9, note="stopped after round 3 of 9, all saved"))
        tell(Update("mifa", 0, "done", 9, 9))
    assert written(console) == [
        "0 of 2 runs ended, in progress: fedau, seed 0: round 2 of 9",
        "fedau, seed 0: stopped after round 3 of 9, all saved",
        "mifa, seed 0: done",
    ]


def test_notes_count_drops() -> None:
    notes = Notes()
    assert notes({"num_dropped": 0, "test_accuracy": 0.5}) == "test accuracy 50.0%"
    notes({"num_dropped": 3})
    assert notes({"num_dropped": 4}) == "test accuracy 50.0%, 7 updates dropped in 2 rounds"


def test_dropped_updates_are_reported_during_and_after_a_run(turnout: Turnout) -> None:
    result = turnout("run", *BROKEN, "--rounds", 3, "--folder", "a")
    assert result.exit_code == 0, result.output
    assert "round 3 of 3, test accuracy" in result.stderr
    assert "12 updates dropped in 3 rounds, " in result.stderr
    after = "fedau, seed 0: 12 updates dropped in 3 rounds of 3, because of NaN or infinity in them or in their sum"
    assert after in result.stderr
    assert " dropped" in result.stdout
    result = turnout("compare", "fedau", "--seeds", 1, *BROKEN, "--rounds", 3, "--jobs", 1, "--no-report")
    assert after in result.stderr
    assert "1 algorithm, 1 seed on digits: 4 clients" in result.stderr


def test_run_of_dropped_updates_only_stops_with_the_reason(turnout: Turnout) -> None:
    result = turnout("run", *BROKEN, "--rounds", 50, "--folder", "a")
    assert result.exit_code == 1
    assert "all updates of the last 5 steps with any, up to round 5, were dropped" in result.stderr


def test_isolated_invalid_or_empty_steps_do_not_stop_a_run() -> None:
    from turnout.simulation.stall import check_updates

    lost = 0
    for version, (sent, dropped) in enumerate([(2, 2), (0, 0), (2, 2), (2, 2), (2, 2), (2, 1), (3, 3)], start=1):
        lost = check_updates(lost, sent, dropped, version)
    assert lost == 1
    with pytest.raises(
        to.Diverged, match=r"all updates of the last 5 steps .* up to round 9,.*3 updates in that round"
    ):
        check_updates(4, 3, 3, 9)


def test_python_raises_the_same_error(tiny) -> None:
    experiment = to.Experiment(tiny, to.models.Logistic(), to.fedavg(local=to.Sgd(lr=1e38, momentum=0.9)), rounds=50)
    with pytest.raises(to.Diverged, match=r"Write a smaller step size, such as Sgd\(lr=0.01\)"):
        experiment.run()


def test_markup_characters_are_printed_literally(turnout: Turnout, small: Sequence[str]) -> None:
    result = turnout("run", "--rounds", 1, "--folder", "a:x:[b]", *small, "--quiet")
    assert f"tables and checkpoint: {Path('a:x:[b]')}" in result.stdout
    result = turnout("run", "--resume", "no:smile:[red]x", *small)
    assert "no:smile:[red]x holds no settings.json" in result.stderr


def test_pipes_do_not_wrap_lines(turnout: Turnout) -> None:
    result = turnout("list", "algorithms")
    assert any(len(line) > 200 for line in result.stdout.splitlines())
    names = [line.split()[0] for line in result.stdout.splitlines()[3:] if line.strip()]
    assert len(names) == len(set(names)), "one line for each"
