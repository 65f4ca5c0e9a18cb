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


def test_an_argument_goes_before_the_variable_and_that_before_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path / "variable"))
    assert data_directory(tmp_path / "argument") == tmp_path / "argument"
    assert data_directory() == tmp_path / "variable"
    monkeypatch.delenv("TURNOUT_DATA")
    assert data_directory() == Path.home() / ".cache" / "turnout" / "data"


def test_home_is_expanded():
    assert data_directory("~/data") == Path.home() / "data"


def test_the_first_folder_with_all_files_is_taken(tmp_path):
    put(tmp_path / "Thing" / "raw", "a.bin")
    complete = put(tmp_path / "thing", "a.bin", "b.bin")
    assert PLACE.locate(tmp_path) == complete
    put(tmp_path / "Thing" / "raw", "b.bin")
    assert PLACE.locate(tmp_path) == tmp_path / "Thing" / "raw"


@pytest.mark.parametrize("bare", ["raw", "."])
def test_nameless_folders_count_only_under_a_directory_that_was_given(monkeypatch, tmp_path, bare):
    put(tmp_path / bare, "a.bin", "b.bin")
    assert PLACE.find(tmp_path) == tmp_path / bare
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path))
    assert PLACE.find() is None


def test_what_is_missing_is_said_with_where_it_was_looked_for_and_what_to_write(monkeypatch, tmp_path):
    monkeypatch.setenv("TURNOUT_DATA", str(tmp_path))
    put(tmp_path / "thing", "a.bin")
    with pytest.raises(DataError) as error:
        PLACE.locate()
    message = str(error.value)
    assert f"{tmp_path / 'Thing' / 'raw'}, {tmp_path / 'thing'} (lacks b.bin)" in message
    assert "`turnout data fetch thing`" in message
    assert "TURNOUT_DATA=FOLDER" in message


def test_long_lists_of_files_are_cut_short(tmp_path):
    with pytest.raises(DataError, match=r"holds f0, f1, f2, f3 and 33 more; looked in"):
        Place("many", tuple(f"f{i}" for i in range(37)), ("many",)).locate(tmp_path)


def test_a_pattern_stands_for_one_file_or_more(tmp_path):
    place = Place("many", ("train/*.json",), ("Many",), remedy="Run the script")
    (tmp_path / "Many" / "train").mkdir(parents=True)
    (tmp_path / "Many" / "train" / "folder.json").mkdir()
    assert place.find(tmp_path) is None
    put(tmp_path / "Many" / "train", "a.json", "b.json")
    assert place.find(tmp_path) == tmp_path / "Many"


def test_a_place_has_its_own_remedy(tmp_path):
    place = Place("many", ("train/*.json",), ("Many",), remedy="Run the script")
    with pytest.raises(DataError, match=r"holds train/\*.json; looked in .*Many. Run the script, or set TURNOUT_DATA"):
        place.locate(tmp_path)
