"""``turnout report``, ``table`` and ``plot``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnout.record import storage

Turnout = Callable[..., Any]


@pytest.fixture
def runs(turnout: Turnout, small: Sequence[str]) -> None:
    for algorithm in ("fedau", "mifa"):
        turnout("run", "--algorithm", algorithm, "--rounds", 2, *small)
    turnout("run", "--rounds", 3, *small, "local.lr=0.5")


@pytest.mark.usefixtures("runs")
def test_runs_are_reported_on_one_page(turnout: Turnout) -> None:
    result = turnout("report", "runs/mifa-digits-0", "runs/fedau-digits-0", "-o", "page.html", "--title", "Two of them")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("report: page.html\n")
    page = Path("page.html").read_text()
    assert "Two of them" in page
    assert "Data of clients" in page
    assert "mifa" in result.stdout
    assert json.loads(Path("runs/mifa-digits-0/environment.json").read_text())["date"] in page


@pytest.mark.usefixtures("runs", "undrawn")
def test_runs_can_be_renamed(turnout: Turnout) -> None:
    result = turnout("report", "slow=runs/fedau-digits-0", "fast=runs/fedau-digits-0-2")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("report: runs/fedau-digits-0/report.html\n")
    assert "slow" in result.stdout
    assert "fast" in result.stdout


@pytest.mark.usefixtures("runs", "undrawn")
def test_report_omits_the_partition_figure_if_data_are_missing(turnout: Turnout) -> None:
    Path("runs/mifa-digits-0/settings.json").unlink()
    result = turnout("report", "runs/mifa-digits-0")
    assert result.exit_code == 0
    assert "no plot of the clients' data: " in result.stderr
    assert "Data of clients" not in Path("runs/mifa-digits-0/report.html").read_text()


@pytest.mark.usefixtures("runs")
def test_unreadable_runs_are_refused(turnout: Turnout) -> None:
    for arguments, message in {
        ("nowhere",): "nowhere holds no run: give the folder of a run or of a comparison",
        ("runs/fedau-digits-0", "runs/fedau-digits-0-2"): "two runs of 'fedau' have seed 0: give them different names",
        ("one=runs",): "one=runs: runs holds runs of several algorithms, which cannot all be one",
    }.items():
        result = turnout("report", *arguments)
        assert result.exit_code == 2
        assert f"Error: {message}" in result.stderr


@pytest.mark.usefixtures("runs")
def test_unfinished_run_is_refused(turnout: Turnout) -> None:
    config = Path("runs/mifa-digits-0/config.json")
    config.write_text(config.read_text().replace('"rounds": 2', '"rounds": 9'))
    config.with_name("SHA256SUMS").unlink()
    result = turnout("report", "runs/mifa-digits-0")
    assert "the run in runs/mifa-digits-0 is not finished (2 of 9 rounds): go on with" in result.stderr


@pytest.mark.usefixtures("runs")
def test_tables_are_written_in_every_format(turnout: Turnout) -> None:
    both = ("slow=runs/fedau-digits-0", "fast=runs/fedau-digits-0-2")
    starts = {"latex": r"\begin{table}", "csv": "algorithm,seeds,", "markdown": "| algorithm |", "html": "<table>"}
    for kind, start in starts.items():
        result = turnout("table", *both, "--format", kind)
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(start)
        assert "slow" in result.stdout
        assert "fast" in result.stdout
    result = turnout("table", *both, "--columns", "test_loss,test_accuracy", "-o", "out/table.md")
    assert result.stdout == "table: out/table.md\n"
    assert Path("out/table.md").read_text().startswith("| algorithm | test loss | test accuracy (%) |")


@pytest.mark.usefixtures("runs")
def test_unsupported_tables_are_refused(turnout: Turnout) -> None:
    for arguments, message in {
        ("--format", "word"): "unknown format 'word'",
        ("--spread", "range"): "unknown spread 'range'",
        ("--columns", "test_acuracy"): "unknown column 'test_acuracy': did you mean 'test_accuracy'",
    }.items():
        result = turnout("table", "runs/mifa-digits-0", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr


@pytest.mark.usefixtures("runs")
def test_figures_are_written_in_every_format(turnout: Turnout) -> None:
    begins = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}
    for kind, begin in begins.items():
        result = turnout("plot", "runs/fedau-digits-0", "runs/mifa-digits-0", "-o", f"figures/accuracy.{kind}")
        assert result.exit_code == 0, result.output
        assert result.stdout == f"figure: figures/accuracy.{kind}\n"
        assert Path(f"figures/accuracy.{kind}").read_bytes().startswith(begin)


@pytest.mark.usefixtures("runs")
def test_figures_report_omissions_and_refuse_other_formats(turnout: Turnout) -> None:
    two = ("runs/fedau-digits-0", "runs/mifa-digits-0")
    result = turnout("plot", *two, "--what", "participation", "-o", "who.png")
    assert "the plot of participation leaves out mifa (seed 0): it shows one run" in " ".join(result.stderr.split())
    result = turnout("plot", *two, "-o", "accuracy.doc")
    assert result.exit_code == 2
    assert "output: got 'accuracy.doc', needed a file that ends in .pdf, .svg, .png" in result.stderr


@pytest.mark.usefixtures("undrawn")
def test_names_from_folders_are_escaped_on_the_terminal(turnout: Turnout, small: Sequence[str]) -> None:
    """A folder from another source can contain any name; neither escape sequences nor markup take effect."""
    assert turnout("run", "--rounds", 2, *small, "--folder", "sent").exit_code == 0
    config = json.loads(Path("sent/config.json").read_text())
    config["algorithm"]["name"] = "a\x1b[2J\x1b]0;owned\x07[red]no markup[/red]"
    storage.save(Path("sent"), {"config.json": storage.json_writer(config)})
    for command in (("report", "sent"), ("table", "sent"), ("table", "sent", "--format", "csv")):
        result = turnout(*command)
        assert result.exit_code == 0, result.output
        assert "owned" in result.stdout
        assert "[red]no markup" in result.stdout
        assert not set("\x1b\x07") & set(result.output)
