"""Sweeps from Python: every combination once, side by side or not, and the best of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import classification

import turnout as to
from turnout.comparison.sweep import measure_of, points, sweep
from turnout.core.checks import ConfigurationError
from turnout.experiment import Experiment
from turnout.results.measure import Measure


def experiment(seed: int, lr: float = 0.1, hidden: tuple[int, ...] = (4,), rounds: int = 4) -> Experiment:
    return Experiment(
        data=classification(),
        model=to.models.Mlp(hidden=hidden),
        algorithm=to.fedavg(to.Sgd(lr=lr, steps=2)),
        rounds=rounds,
        evaluate_every=1,
        seed=seed,
    )


def test_every_combination_is_run_with_every_seed_and_the_best_is_found(tmp_path: Path) -> None:
    grid = {"lr": [0.0001, 0.3], "hidden": [(4,), (8,)]}
    found = sweep(experiment, grid, 2, tmp_path, jobs=1)
    assert list(found.points) == ["lr-0.0001_hidden-4", "lr-0.0001_hidden-8", "lr-0.3_hidden-4", "lr-0.3_hidden-8"]
    assert [[record.seed for record in group] for group in found.records.values()] == [[0, 1]] * 4
    for name, group in found.records.items():
        finals = [record.history.final("test_accuracy") for record in group]
        assert found.scores[name].value == pytest.approx(sum(finals) / 2)
    assert found.best["lr"] == 0.3
    assert found.best == found.points[max(found.scores, key=lambda name: found.scores[name].value)]
    assert (tmp_path / "lr-0.3_hidden-8" / "seed-1" / "rounds.parquet").exists()


def test_finished_runs_of_a_sweep_are_not_repeated(tmp_path: Path) -> None:
    first = sweep(experiment, {"lr": [0.01, 0.1]}, 1, tmp_path, jobs=1)
    notes: list[str] = []
    again = sweep(
        experiment, {"lr": [0.01, 0.1]}, 1, tmp_path, jobs=1, progress=lambda update: notes.append(update.note)
    )
    assert again.figures == first.figures
    assert notes.count("was finished") == 2


def test_seeds_of_a_point_may_run_in_lockstep(tmp_path: Path) -> None:
    grid = {"lr": [0.01, 0.1]}
    alone = sweep(experiment, grid, 2, tmp_path / "alone", jobs=1)
    together = sweep(experiment, grid, 2, tmp_path / "together", jobs=1, lockstep=2)
    assert together.figures == alone.figures
    with pytest.raises(ConfigurationError, match="lockstep: got 0"):
        sweep(experiment, grid, 2, tmp_path / "none", lockstep=0)


def test_to_accuracy_ranks_by_rounds(tmp_path: Path) -> None:
    found = sweep(partial(experiment, rounds=6), {"lr": [0.0001, 0.5]}, 2, tmp_path, to_accuracy=0.5, jobs=1)
    reached = [record.history.reached("test_accuracy", 0.5) for record in found.records["lr-0.5"]]
    assert None not in reached
    assert found.best == {"lr": 0.5}
    assert found.scores["lr-0.0001"].text == "not reached, 0/2"


def test_metric_determines_the_ranking(tmp_path: Path) -> None:
    found = sweep(experiment, {"lr": [0.0001, 0.1]}, 1, tmp_path, metric="train_loss", jobs=1)
    assert found.measure == Measure("final", "train_loss")
    assert found.scores["lr-0.1"].value < found.scores["lr-0.0001"].value
    assert found.best == {"lr": 0.1}


@pytest.mark.parametrize(
    ("grid", "names"),
    [
        ({"local.lr": [0.1, 1e-5]}, ["lr-0.1", "lr-1e-05"]),
        ({"local.lr": [1], "server.lr": [2]}, ["local.lr-1_server.lr-2"]),  # two axes with one last name
        ({"model.hidden": [[64], [64, 30]]}, ["hidden-64", "hidden-64-30"]),
        ({"a": [True, None, "none", -1]}, ["a-true", "a-none", "a--1"]),
        ({"lr": [{"kind": "halving", "start": 2}]}, ["lr--kind-halving-start-2-"]),
    ],
)
def test_points_have_valid_folder_names(grid: dict[str, Any], names: list[str]) -> None:
    if len(names) < len(next(iter(grid.values()))):
        with pytest.raises(ConfigurationError, match="grid: two points are called a-none: give each value once"):
            points(grid)
        grid["a"].remove("none")
    assert list(points(grid)) == names


def test_last_axis_varies_fastest() -> None:
    assert list(points({"a": [1, 2], "b": [3, 4]}).values()) == [
        {"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "grid: got {}, needed values for at least one setting"),
        ([1], r"grid: got \[1\], needed values"),
        ({"lr": []}, r"grid lr: got \[\], needed a list of values"),
        ({"lr": "0.1,0.2"}, "grid lr: got '0.1,0.2', needed a list of values"),
        ({"lr": [0.1, 0.1]}, r"grid: two points are called lr-0.1: give each value once"),
    ],
)
def test_invalid_grids_are_refused(grid: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        points(grid)


def test_measure_of_a_sweep_has_a_short_name() -> None:
    assert measure_of(None, None) == Measure("final", "test_accuracy")
    assert measure_of(None, 0.7) == Measure("rounds")
    assert measure_of("bytes", 0.7) == Measure("bytes")
    assert measure_of("train_loss", None) == Measure("final", "train_loss")
    assert measure_of("average train_loss", None) == Measure("average", "train_loss")


@pytest.mark.parametrize(
    ("metric", "to_accuracy", "message"),
    [
        ("rounds", None, "metric: rounds needs to_accuracy"),
        ("train_loss", 0.7, "metric: final train_loss needs no to_accuracy"),
        ("mean train_loss", None, "unknown measure 'mean'"),
        (None, 70, r"to_accuracy: got 70, needed a share .*Write 0\.7 for 70 %"),
    ],
)
def test_invalid_metrics_are_refused(metric: Any, to_accuracy: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        measure_of(metric, to_accuracy)


def test_unrecorded_metric_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown column 'appeal'"):
        sweep(experiment, {"lr": [0.1]}, 1, tmp_path, metric="appeal", jobs=1)


def test_sweep_is_exported() -> None:
    assert to.sweep is sweep
