"""Comparisons from Python whose experiments are tuned first."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import turnout as to
from turnout.comparison.compare import compare
from turnout.comparison.tune import _outcome
from turnout.comparison.tuning import Outcome
from turnout.core.checks import ConfigurationError
from turnout.experiment import Experiment
from turnout.record.query import History
from turnout.results.records import RunRecord

AXES = {"lr": (0.002, 0.02)}


def experiment(seed: int, lr: float = 0.1, rule: str = "fedau", validation_fraction: float = 0.2) -> Experiment:
    data = to.data.digits().split(
        to.partition.Dirichlet(alpha=1.0), num_clients=10, seed=seed, validation_fraction=validation_fraction
    )
    return Experiment(
        data=data,
        model=to.models.Logistic(),
        algorithm=getattr(to, rule)(to.Sgd(lr=lr, steps=5)),
        rounds=12,
        evaluate_every=12,
        seed=seed,
    )


RULES = {name: partial(experiment, rule=name) for name in ("fedau", "mifa")}


def test_experiments_are_compared_with_the_values_that_the_search_chose(tmp_path: Path) -> None:
    tune = to.Tune(3000, dict.fromkeys(RULES, AXES), seeds=(7, 8))
    records = compare(RULES, 2, tmp_path / "a", jobs=1, tune=tune)
    choices = json.loads((tmp_path / "a" / "tuned.json").read_text())
    chosen = {name: partial(make, **choices[name]["values"]) for name, make in RULES.items()}
    plain = compare(chosen, 2, tmp_path / "b", jobs=1)
    assert [record.history.final("test_accuracy") for record in records] == [
        record.history.final("test_accuracy") for record in plain
    ]
    for choice in choices.values():
        assert choice["values"]["lr"] > 0.02  # above the first range
        assert choice["edges"] == []
        assert choice["tried"]["lr"][-1] > choice["values"]["lr"]
    searched = {path.parent.name for path in (tmp_path / "a-tuning").rglob("config.json")}
    assert searched <= {"seed-7", "seed-8"}


def test_search_resumes_without_repeating_runs(tmp_path: Path) -> None:
    tune = to.Tune(600, {"fedau": AXES}, seeds=(7,))
    first = compare({"fedau": RULES["fedau"]}, 1, tmp_path / "a", jobs=1, tune=tune)
    notes: list[str] = []
    again = compare(
        {"fedau": RULES["fedau"]}, 1, tmp_path / "a", jobs=1, tune=tune,
        progress=lambda update: notes.append(update.note) if update.status == "done" else None,
    )  # fmt: skip
    assert set(notes) == {"was finished"}
    assert again[0].history.final("test_accuracy") == first[0].history.final("test_accuracy")


def diverging(seed: int, lr: float = 0.1) -> Experiment:
    """Fail at large step sizes, as a user's code may."""
    if lr > 0.05:
        raise ConfigurationError("too large")
    return experiment(seed, lr)


def test_candidate_that_fails_is_the_worst(tmp_path: Path) -> None:
    tune = to.Tune(10_000, {"own": {"lr": (0.02, 0.04)}}, seeds=(7,))
    compare({"own": lambda seed, lr=0.02: diverging(seed, lr)}, 1, tmp_path / "a", jobs=1, tune=tune)
    choice = json.loads((tmp_path / "a" / "tuned.json").read_text())["own"]
    assert choice["values"]["lr"] <= 0.05
    assert choice["tried"]["lr"][-1] == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("tune", "changes", "message"),
    [
        (to.Tune(10, {"fedau": AXES}, seeds=(1, 7)), {}, r"seeds: \[1\] both choose and are reported"),
        (to.Tune(10, {"mifa": AXES}), {}, "axes of fedau: got None, needed values of at least one axis"),
        (to.Tune(10, {"fedau": AXES}), {"validation_fraction": 0.0}, "fedau: tuning needs validation examples"),
    ],
)
def test_invalid_searches_are_refused(tune: to.Tune, changes: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        compare({"fedau": partial(experiment, **changes)}, 2, tmp_path / "a", jobs=1, tune=tune)


def test_experiments_that_cannot_be_tuned_are_refused(tmp_path: Path) -> None:
    def wrong(seed: int, lr: float = 0.1) -> Any:
        return experiment(seed) if lr == 0.1 else lr

    with pytest.raises(
        ConfigurationError, match=r"experiments\['own'\]: got 0.02, needed a function that returns an Experiment"
    ):
        compare({"own": wrong}, 1, tmp_path, jobs=1, tune=to.Tune(9, {"own": {"lr": (0.02, 0.04)}}, seeds=(7,)))


def test_budget_is_at_least_one() -> None:
    with pytest.raises(ConfigurationError, match="tune budget: got 0"):
        to.Tune(0, {})


@pytest.mark.parametrize(("columns", "figure"), [
    ({"validation_loss": math.nan}, -math.inf),
    ({"validation_loss": math.inf}, -math.inf),
    ({"validation_loss": 2.0, "validation_brier": 0.1}, -2.0),
    ({"validation_loss": 2.0, "validation_accuracy": 0.5}, 0.5),
])  # fmt: skip
def test_run_that_diverged_is_the_worst_and_further_metrics_do_not_choose(
    columns: dict[str, float], figure: float
) -> None:
    history = History()
    history.record(round=1, num_participants=3, **columns)
    assert _outcome(RunRecord("a", 0, history)) == Outcome(figure, 3)
