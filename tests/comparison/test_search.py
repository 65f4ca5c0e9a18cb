"""Searches: trials that Optuna proposes, which go on where they stopped; ranges and how they are written."""

import math
import re
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from tests.comparison.test_sweep import experiment

import turnout as to
from turnout import ConfigurationError
from turnout.comparison.compare import RunsFailed
from turnout.comparison.study import FILE, Study, corners, space_of
from turnout.core.checks import CheckpointError
from turnout.reporting.sweep_page import edge_note, write_sweep
from turnout.results.grid import Search
from turnout.results.measure import Measure
from turnout.results.range import Range

SPACE = {"lr": Range(1e-4, 1.0, log=True), "steps": Range(1, 9), "rule": ["a", None, (4, 2)]}
ACCURACY = Measure("final", "test_accuracy")
search = partial(to.sweep, jobs=1)


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk():
    """SQLite waits for the disk at every commit, several times for a trial, which these tests need not."""

    def quick(connection, record):
        del record
        connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", quick)
    yield
    event.remove(Engine, "connect", quick)


def quality(point):
    """A figure with a best point: lr = 0.1."""
    return -abs(math.log10(point["lr"]) + 1) + 0.01 * point["steps"]


def told(study, num_trials, most=1000):
    """Tell the figures of at most so many trials."""
    while batch := study.next(num_trials):
        for name, point in batch.items():
            if not most:
                return study
            study.tell(name, quality(point))
            most -= 1
    return study


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_killed_study_resumes_to_the_same_trials(tmp_path: Path, sampler: str) -> None:
    make = partial(Study, space=SPACE, measure=ACCURACY, seeds=[0], sampler=sampler)
    whole = told(make(tmp_path / "whole"), 11).points
    assert len(whole) == 11
    told(make(tmp_path / "killed"), 11, most=4)  # between two batches
    told(make(tmp_path / "killed"), 11, most=1)  # within one
    assert told(make(tmp_path / "killed"), 11).points == whole
    another = told(make(tmp_path / "another", sampler_seed=1), 4).points
    assert all(another[name] != whole[name] for name in another)
    assert told(make(tmp_path / "whole"), 12).points.keys() == {f"trial-{i}" for i in range(12)}


def test_trials_are_within_the_space_and_rounded(tmp_path: Path) -> None:
    points = told(Study(tmp_path, SPACE, ACCURACY, [0], sampler="random"), 20).points.values()
    rates = [point["lr"] for point in points]
    assert all(1e-4 <= lr <= 1.0 and float(f"{lr:.4g}") == lr for lr in rates)
    assert 3 < sum(lr < 1e-2 for lr in rates) < 17  # as many below as above, by logarithms
    steps = {point["steps"] for point in points}
    assert len(steps) > 5
    assert steps <= set(range(1, 10))
    assert all(type(point["steps"]) is int for point in points)
    assert {point["rule"] for point in points} == {"a", None, (4, 2)}


def test_proposals_learn_from_earlier_trials(tmp_path: Path) -> None:
    """At random the mean is -1.25 + 0.05: the logarithm of lr is uniform from -4 to 0, and 2.5 / 2 from -1 on average."""
    points = list(told(Study(tmp_path, SPACE, ACCURACY, [0], sampler="tpe"), 24).points.values())
    assert sum(map(quality, points[12:])) / 12 > -1.2 + 0.4


def test_minimized_objectives_and_failed_trials_rank_correctly(tmp_path: Path) -> None:
    study = Study(tmp_path, {"x": Range(0.0, 1.0)}, Measure("final", "train_loss"), [0])
    for name, figure in zip(study.next(4), (0.5, math.nan, None, 0.2), strict=True):
        study.tell(name, figure, "it fell" if figure is None else "")
    found = study._study
    assert found.best_trial.number == 3
    assert [trial.value for trial in found.trials] == [0.5, math.inf, math.inf, 0.2]
    assert study.failures == {"trial-2": "it fell"}


def dropping(seed: int, lr: float, hidden: tuple[int, ...]) -> to.Experiment:
    return replace(experiment(seed, lr), model=to.models.Mlp(hidden=hidden, dropout=0.5))


def test_repeating_a_search_adds_trials(tmp_path: Path) -> None:
    grid = {"lr": Range(1e-4, 1.0, log=True), "hidden": [(4,), (8,)]}
    first = search(experiment, grid, 2, tmp_path, trials=3, trials_at_once=2, sampler="random")
    assert isinstance(first, Search)
    assert list(first.points) == ["trial-0", "trial-1", "trial-2"]
    assert [[record.seed for record in group] for group in first.records.values()] == [[0, 1]] * 3
    assert first.best_so_far[-1] == first.scores[first.best_point].value == max(first.best_so_far)
    notes: list[str] = []
    again = search(
        experiment, grid, 2, tmp_path, trials=4, trials_at_once=2, sampler="random",
        progress=lambda each: notes.append(each.status),
    )  # fmt: skip
    assert {name: again.points[name] for name in first.points} == first.points
    assert notes.count("done") == 2  # the fourth trial alone
    with pytest.raises(CheckpointError, match=r"holds a search with seeds \[0, 1\], not \[0\]: give another folder"):
        search(experiment, grid, 1, tmp_path, trials=4, trials_at_once=2, sampler="random")
    with pytest.raises(CheckpointError, match="holds a search whose runs have 4 rounds, not 5: give another folder"):
        search(partial(experiment, rounds=5), grid, 2, tmp_path, trials=6, trials_at_once=2, sampler="random")
    with pytest.raises(CheckpointError, match=r"holds another experiment .*dropout"):
        search(dropping, grid, 2, tmp_path, trials=6, trials_at_once=2, sampler="random")
    page = write_sweep(again, tmp_path / "report.html", "Trials").read_text()
    assert "Every trial" in page
    assert page.count("<svg") >= 1


def test_failed_trial_counts_as_the_worst_and_a_failed_batch_ends_the_search(tmp_path: Path) -> None:
    def fragile(seed: int, lr: float, below: float) -> to.Experiment:
        if below < lr < 1.0 and lr != 0.001:
            raise ConfigurationError("it fell")
        return experiment(seed, lr, rounds=2)

    grid = {"lr": Range(0.001, 1.0, log=True)}
    found = search(partial(fragile, below=0.1), grid, 1, tmp_path / "some", trials=6, sampler="random")
    assert isinstance(found, Search)
    assert 0 < len(found.failures) < 6
    assert set(found.failures) == {name for name, point in found.points.items() if point["lr"] > 0.1}
    assert all("seed 0: it fell" in why for why in found.failures.values())
    assert found.best["lr"] <= 0.1
    with pytest.raises(RunsFailed, match="4 runs failed"):
        search(partial(fragile, below=0.0), grid, 1, tmp_path / "all", trials=6)


def test_best_point_at_the_edge_of_a_range_is_noted(tmp_path: Path) -> None:
    found = search(experiment, {"lr": Range(0.0001, 0.3, log=True)}, 1, tmp_path, trials=6, sampler="random")
    assert isinstance(found, Search)
    at_the_edge = not 0.05 <= Range(0.0001, 0.3, log=True).position(found.best["lr"]) <= 0.95
    assert (found.at_the_edge == ["lr"]) is at_the_edge
    assert ("edge of the range" in edge_note(found)) is at_the_edge


def test_corners_cover_every_value_and_both_ends_of_ranges() -> None:
    assert corners(SPACE) == [
        {"lr": 1e-4, "steps": 1, "rule": "a"},
        {"lr": 1.0, "steps": 9, "rule": None},
        {"lr": 1e-4, "steps": 1, "rule": (4, 2)},
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1..20", Range(1, 20)),
        ("0.001..1:log", Range(0.001, 1, log=True)),
        ("1e-4..0.5", Range(1e-4, 0.5)),
        ("-1.5..-.5", Range(-1.5, -0.5)),
        (" .1..2. ", Range(0.1, 2.0)),
        ("0.1,0.2", None),
        ("fedau", None),
        ([0.1], None),
    ],
)
def test_ranges_are_parsed(text, found) -> None:
    read = Range.read(text)
    assert read == found
    if read is not None:
        assert read.whole is (found == Range(1, 20))
        assert Range.read(str(read)) == found


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Range(1, 1), "range: got '1..1', needed the least number first"),
        (lambda: Range(0, 1, log=True), "range: got '0..1:log', needed numbers above 0"),
        (lambda: Range(True, 2), "low of a range: got True, needed a number"),
        (lambda: Range(0, math.inf), "high of a range: got inf"),
        (lambda: Range.read("a..b"), "range: got 'a..b', needed two numbers"),
        (lambda: Range.read("1..2:sqrt"), "range: got '1..2:sqrt', needed two numbers"),
        (lambda: space_of({}), "grid: got {}, needed a range or values"),
        (lambda: space_of({"lr": 0.1}), "grid lr: got 0.1, needed a list of values, or a range"),
        (lambda: space_of({"lr": [0.1, 0.1]}), "grid lr: got .*, needed each value once"),
        (lambda: to.sweep(experiment, {"lr": Range(0.1, 1)}, 1, "x"), "lr: a range has no end .*--trials 30"),
        (lambda: to.sweep(experiment, {"lr": Range(0.1, 1)}, 1, "x", trials=0), "trials: got 0, needed a whole number"),
        (
            lambda: Study(Path("x"), SPACE, ACCURACY, [0], sampler="grid"),
            "unknown sampler 'grid'",
        ),
        (lambda: Study(Path("x"), SPACE, ACCURACY, [0], trials_at_once=0), "trials_at_once: got 0"),
        (lambda: Study(Path("x"), SPACE, ACCURACY, [0], sampler_seed=-1), "sampler_seed: got -1"),
    ],
)
def test_invalid_searches_are_refused(make, message, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=message):
        make()
    assert not list(tmp_path.rglob(FILE))


def test_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(ConfigurationError, match=r"needs optuna, which is not installed: pip install '\.\[search\]'"):
        Study(tmp_path, SPACE, ACCURACY, [0])


@pytest.mark.parametrize("content", ["garbage", "half of a trial", "other values", "a full disk"])
def test_damaged_or_read_only_study_file_is_named(
    tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # before Optuna tries again, for seconds
    make = partial(Study, tmp_path, SPACE, ACCURACY, [0], sampler="random")
    named = rf"{re.escape(str(tmp_path / FILE))} cannot be used \(.+\): free some space, restore it from a copy"
    pages = [2**30]

    def room(connection, record):
        del record
        connection.execute("PRAGMA page_size=512")
        connection.execute(f"PRAGMA max_page_count={pages[0]}")

    event.listen(Engine, "connect", room)
    study = told(make(), 4)
    if content == "garbage":
        (tmp_path / FILE).write_bytes(b"garbage" * 1000)
    with closing(sqlite3.connect(tmp_path / FILE)) as database, suppress(sqlite3.DatabaseError):
        if content == "half of a trial":
            database.execute("DELETE FROM trial_params WHERE param_name = 'steps'")
        if content == "other values":
            database.execute("UPDATE trial_params SET distribution_json = '[]'")
        if content == "a full disk":
            pages[:] = database.execute("PRAGMA page_count").fetchone()
        database.commit()
    with pytest.raises(CheckpointError, match=named):
        _ = told(make(), 100 if content == "a full disk" else 4).points
    event.remove(Engine, "connect", room)
    if content == "a full disk":
        assert told(make(), 8).points.items() >= study.points.items()
