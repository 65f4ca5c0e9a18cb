"""``turnout data``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

Turnout = Callable[..., Any]


def test_data_sets_are_listed_with_their_directory(turnout: Turnout) -> None:
    result = turnout("data", "list", "--directory", ".")
    assert result.exit_code == 0, result.output
    assert "turnout data fetch mnist" in result.stdout
    assert "1,797 scanned digits" in result.stdout


def test_partition_is_shown_by_client(turnout: Turnout) -> None:
    result = turnout("data", "show", "digits", "num_clients=7", "data.partition=classes_per_client", "k=2")
    assert result.exit_code == 0, result.output
    row = next(line.split() for line in result.stdout.splitlines() if line.strip().startswith("training"))
    assert row[1] == "7"
    assert row[-1] == "2.0"
    assert "pooled test" in result.stdout
    assert result.stdout.endswith("data of clients: runs/digits-clients.png\n")
    assert [path.name for path in Path().iterdir()] == ["runs"]
    assert Path("runs/digits-clients.png").read_bytes().startswith(b"\x89PNG")


def test_figure_is_written_to_the_requested_path(turnout: Turnout) -> None:
    result = turnout("data", "show", "digits", "client_test_fraction=0.2", "unseen_clients=5", "-o", "who.svg")
    assert "<svg" in Path("who.svg").read_text()
    for part in ("client test", "unseen, training", "unseen, test"):
        assert part in result.stdout
    assert "cannot write who.svg/who.svg" in turnout("data", "show", "digits", "-o", "who.svg/who.svg").stderr
    assert "needed a file that ends in .pdf, .svg, .png" in turnout("data", "show", "digits", "-o", "who.xyz").stderr


def test_seed_determines_the_partition(turnout: Turnout) -> None:
    one, same, other = (
        turnout("data", "show", "digits", "num_clients=10", "--seed", seed).stdout for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_fetch_passes_its_options(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def fetch(name: str, directory: Path | None = None, *, force: bool = False) -> Path:
        asked.update(name=name, directory=directory, force=force)
        return Path("there")

    monkeypatch.setattr(import_module("turnout.data.fetch"), "fetch", fetch)
    assert turnout("data", "fetch", "mnist", "--directory", "d", "--force").stdout == "there\n"
    assert asked == {"name": "mnist", "directory": Path("d"), "force": True}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fetch", "mnits"), "unknown data set to fetch 'mnits': did you mean 'mnist'?"),
        (
            ("fetch", "digits"),
            "nothing to fetch for 'digits', it is inside scikit-learn: pip install '.[digits]'",
        ),
        (("fetch", "synthetic"), "nothing to fetch for 'synthetic', it is drawn when it is used"),
        (("show", "digit"), "unknown data set 'digit': did you mean 'digits'?"),
        (("show", "digits", "alpa=3"), "unknown option 'data.alpa' of digits: did you mean 'alpha'?"),
        (("show", "mnist", "--directory", "nowhere"), "turnout data fetch mnist"),
        (("show", "mnist", "--directory", "nowhere"), "or set TURNOUT_DATA=FOLDER (or data.directory=) to a folder"),
    ],
)
def test_invalid_usage_prints_one_line(arguments: tuple[str, ...], message: str, turnout: Turnout) -> None:
    result = turnout("data", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_table_file_is_a_data_set(turnout, tmp_path):
    rows = [f"{i % 7},{i % 3},clinic {i % 4},{'yes' if i % 2 else 'no'}" for i in range(80)]
    (tmp_path / "patients.csv").write_text("\n".join(["age,dose,clinic,ill", *rows]))
    where = ("--data", "table", f"data.path={tmp_path / 'patients.csv'}", "data.label=ill", "data.client=clinic")
    result = turnout("run", *where, "--rounds", 1, "--availability", "everyone")
    assert result.exit_code == 0, result.output
    assert "4 clients" in result.stderr
    result = turnout("run", "--data", "table")
    assert result.exit_code == 2
    assert "data.path is missing" in result.stderr
