"""Directories of data sets."""

from pathlib import Path

import pytest

from turnout.core.checks import DataError
from turnout.data.directory import Place, data_directory

PLACE = Place("thing", ("a.bin", "b.bin"), ("Thing/raw", "thing"), bare=("raw", "."))


def put(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file).write_bytes(b"x")
    return folder


def test_argument_precedes_variable_and_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path / "variable"))
    assert data_directory(tmp_path / "argument") == tmp_path / "argument"
    assert data_directory() == tmp_path / "variable"
    monkeypatch.delenv("TURNOUT_DATA")
    assert data_directory() == Path.home() / ".cache" / "turnout" / "data"


def test_home_is_expanded():
    assert data_directory("~/data") == Path.home() / "data"


def test_first_folder_with_all_files_is_used(tmp_path):
    put(tmp_path / "Thing" / "raw", "a.bin")
    complete = put(tmp_path / "thing", "a.bin", "b.bin")
    assert PLACE.locate(tmp_path) == complete
    put(tmp_path / "Thing" / "raw", "b.bin")
    assert PLACE.locate(tmp_path) == tmp_path / "Thing" / "raw"


@pytest.mark.parametrize("bare", ["raw", "."])
def test_unnamed_folders_are_found_only_below_an_explicit_directory(monkeypatch, tmp_path, bare):
    put(tmp_path / bare, "a.bin", "b.bin")
    assert PLACE.find(tmp_path) == tmp_path / bare
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path))
    assert PLACE.find() is None


def test_error_lists_missing_files_searched_paths_and_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path))
    put(tmp_path / "thing", "a.bin")
    with pytest.raises(DataError) as error:
        PLACE.locate()
    message = str(error.value)
    assert f"{tmp_path / 'Thing' / 'raw'}, {tmp_path / 'thing'} (lacks b.bin)" in message
    assert "`turnout data fetch thing`" in message
    assert "TURNOUT_DATA=FOLDER" in message


def test_long_lists_of_files_are_truncated(tmp_path):
    with pytest.raises(DataError, match=r"holds f0, f1, f2, f3 and 33 more; looked in"):
        Place("many", tuple(f"f{i}" for i in range(37)), ("many",)).locate(tmp_path)


def test_pattern_matches_one_or_more_files(tmp_path):
    place = Place("many", ("train/*.json",), ("Many",), remedy="Run the script")
    (tmp_path / "Many" / "train").mkdir(parents=True)
    (tmp_path / "Many" / "train" / "folder.json").mkdir()
    assert place.find(tmp_path) is None
    put(tmp_path / "Many" / "train", "a.json", "b.json")
    assert place.find(tmp_path) == tmp_path / "Many"


def test_data_set_specific_remedy_is_shown(tmp_path):
    place = Place("many", ("train/*.json",), ("Many",), remedy="Run the script")
    with pytest.raises(DataError, match=r"holds train/\*.json; looked in .*Many. Run the script, or set TURNOUT_DATA"):
        place.locate(tmp_path)
