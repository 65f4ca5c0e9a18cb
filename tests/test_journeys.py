"""The scripts of examples/journeys/ end with the figures that their users want."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

JOURNEYS = Path(__file__).parents[1] / "examples/journeys"


@pytest.fixture
def journey(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run a script in an empty folder, and return what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *options])
        runpy.run_path(str(JOURNEYS / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_own_network_and_trace_end_with_a_paired_difference(journey, tmp_path: Path) -> None:
    printed = journey("own_model_and_trace.py", "--rounds", "8", "--seeds", "2", "--budget", "200")
    assert re.search(r"\| fedau \| .*\d+\.\d \[.*\(p \d\.\d+\)", printed)
    assert (tmp_path / "runs/own-model-and-trace/trace.csv").read_text("utf-8").startswith("client,from,to\n")


def test_hospitals_see_who_gains_and_what_the_model_says_of_new_patients(journey, tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="tables in pandas: pip install pandas")
    printed = journey("hospitals.py", "--rounds", "20")
    assert all(name in printed for name in ("Ahlen", "Fulda", "gain_over_local", "gain_over_centralized"))
    chances = [
        float(each) for each in re.findall(r"\d\.\d\d", printed.partition("malignant tumor:")[2].partition("\n")[0])
    ]
    diagnoses = printed.partition("diagnosed:")[2].strip().split(", ")
    right = [(chance > 0.5) == (diagnosis == "malignant") for chance, diagnosis in zip(chances, diagnoses, strict=True)]
    assert len(right) == 6
    assert sum(right) >= 5
    assert {"model.safetensors", "preprocessing.json"} <= {
        path.name for path in (tmp_path / "runs/hospitals").iterdir()
    }


def test_lesson_shows_what_the_plain_average_forgets(journey, tmp_path: Path) -> None:
    printed = journey("lesson.py")
    plain, longer, fedau = (float(mean) for mean in re.findall(r"   (\d+\.\d)\n", printed))
    assert plain < longer < fedau
    for name in ("who-is-there.svg", "accuracy.svg"):
        assert (tmp_path / "runs/lesson" / name).stat().st_size > 1000


def test_language_model_learns_and_writes(journey) -> None:
    printed = journey("language_model.py", "--rounds", "3", "--characters", "2000")
    now, uniform = re.search(r"character: (\d+\.\d+), and (\d+) if", printed).groups()  # type: ignore[union-attr]
    assert float(now) < 0.8 * float(uniform)
    assert len(printed.splitlines()[-1]) > 120
