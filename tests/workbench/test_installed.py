"""The package has the declarations of papers, so that ``turnout reproduce folb/table-1`` works without a clone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.workbench.reproduction import reading

ROOT = Path(__file__).parents[2]


def run(*command: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, env=os.environ | variables, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel has it, built from the clone."""
    pytest.importorskip("setuptools")
    target = tmp_path_factory.mktemp("built")
    run("setup.py", "-q", "egg_info", "--egg-base", str(target), "build_py", "--build-lib", str(target), folder=ROOT)
    return target


def test_package_lists_and_loads_all_declarations(built: Path, tmp_path: Path) -> None:
    listed = run(
        "-c", "from turnout_cli import main; main()", "reproduce", folder=tmp_path, PYTHONPATH=str(built), COLUMNS="200"
    )
    names = reading.names(ROOT / "reproductions")
    assert len(names) > 30
    assert not [name for name in names if name not in listed]
    loads = "from turnout.workbench.reproduction.reading import load; print(load({!r}).title)"
    title = run("-c", loads.format("folb/table-1"), folder=tmp_path, PYTHONPATH=str(built)).strip()
    assert title == reading.load("folb/table-1", ROOT / "reproductions").title


def test_package_has_the_functions_that_declarations_name(built: Path) -> None:
    named = {path.relative_to(ROOT / "reproductions") for path in (ROOT / "reproductions").glob("*/*.py")}
    assert named
    assert not [path for path in named if not (built / "turnout" / "workbench" / "declarations" / path).is_file()]


def test_folder_of_a_clone_comes_before_that_of_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reading, "INSTALLED", tmp_path / "declarations")
    assert reading.folder_of() == reading.HERE
    reading.INSTALLED.mkdir()
    assert reading.folder_of() == reading.INSTALLED
    reading.HERE.mkdir()
    assert reading.folder_of() == reading.HERE
    assert reading.folder_of(tmp_path) == tmp_path
