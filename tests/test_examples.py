"""Scripts of examples/ run as documented and print what they promise."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run a script in an empty folder, and return what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *options])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_user_algorithm_and_network(script) -> None:
    options = ("--rounds", "1", "--clients", "6", "--cohort", "2", "--steps", "1", "--width", "8")
    printed = script("cifar10.py", *options)
    assert "not CIFAR-10" in printed
    assert len(re.findall(r"lr 0\.\d+: validation \d+\.\d%", printed)) == 2
    assert re.search(r"chosen: lr 0\.\d+, test \d+\.\d%", printed)


def test_tables_with_regression_and_auc(script) -> None:
    printed = script("tables.py", "--rounds", "30")
    assert float(re.search(r"r2 (\d\.\d+)", printed)[1]) > 0.4  # type: ignore[index]
    assert all(float(area) > 0.97 for area in re.findall(r"auc (\d\.\d+)", printed))
    assert len(re.findall("balanced_accuracy", printed)) == 2


def test_reading_of_runs(script, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="tables in pandas: pip install pandas")
    printed = script("reading.py")
    assert "a client took part 10.0 times" in printed
    assert "| lr-0.1 |" in printed
    for name in ("accuracy.pdf", "clients.svg", "table.tex"):
        assert (tmp_path / "runs/reading" / name).stat().st_size > 200
    assert "| lr-0.1 |" in script("reading.py", "runs/reading")


def test_executor_of_a_cluster(script) -> None:
    printed = script("cluster.py", "--rounds", "4", "--seeds", "1", "--on", "processes:1")
    assert len(re.findall(r"call: 2 runs in \d+\.\d s", printed)) == 2
    assert "| fedau |" in printed
