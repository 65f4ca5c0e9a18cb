"""The choice of the tests that `make test` leaves out."""

from pathlib import Path

from scripts import long_tests

SECONDS = {"a": 5.0, "b": 0.5, "c": 3.0, "d": 0.25}


def test_slowest_tests_are_long_until_the_others_fit_the_budget():
    assert long_tests.chosen(SECONDS, 4.0) == {"a": 5.0}
    assert long_tests.chosen(SECONDS, 0.75) == {"a": 5.0, "c": 3.0}
    assert long_tests.chosen(SECONDS, 100.0) == {}


def test_least_of_several_times_counts(tmp_path: Path):
    (tmp_path / "one").write_text("2.0 tests/x.py::test[a b]\n1.0 tests/y.py::test\n")
    (tmp_path / "two").write_text("1.5 tests/x.py::test[a b]\n")
    seconds = long_tests.measured([tmp_path / "one", tmp_path / "two"])
    assert seconds == {"tests/x.py::test[a b]": 1.5, "tests/y.py::test": 1.0}


def test_marks_that_disagree_with_times_are_named():
    marks = {"c": 3.0, "gone": 1.0}
    assert long_tests.outdated({**SECONDS, "a": 7.0}, marks) == [
        "a takes 7.00 s, and is not marked",
        "gone is marked, and was not run",
    ]
    assert long_tests.outdated(SECONDS, {"a": 5.0, "c": 3.0}) == []


def test_marks_are_read_from_the_file_that_was_written(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(long_tests, "FILE", tmp_path / "long.txt")
    (tmp_path / "times").write_text("".join(f"{seconds} {name}\n" for name, seconds in SECONDS.items()))
    monkeypatch.setattr("sys.argv", ["long_tests", "--budget", "1", str(tmp_path / "times")])
    long_tests.main()
    assert long_tests.marked(tmp_path / "long.txt") == {"a": 5.0, "c": 3.0}


def test_marked_tests_exist():
    """Where all tests were collected; a mistake in a hook of the collection would end the workers without a word."""
    assert not long_tests.MISSING, "rename these tests in tests/long.txt, or delete their lines"
