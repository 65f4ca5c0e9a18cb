"""``turnout advise``: measures of participation, nearest cells, and rules that are tried on a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from tests.workbench.test_benchmark import CELLS, CHANCE, SETTINGS, SMALL
from typer.testing import CliRunner

from turnout.core.checks import DataError
from turnout.workbench import commands
from turnout.workbench.advise.advice import leaders, nearest, tried, visits
from turnout.workbench.advise.participation import Participation, available_in, present_in
from turnout.workbench.benchmark.cells import Version
from turnout.workbench.benchmark.standings import table_of

LONG = {"rounds": 60, "evaluate_every": 60}
PATTERNS = {
    "chance": CHANCE["availability"],
    "bursts": {"name": "markov", "mean": 0.3, "join": 0.05, "correlated_with_labels": "none"},
    "everyone": {"name": "everyone"},
}
VERSION = replace(
    SMALL,
    seeds=(0, 1, 2, 3, 4),
    cells=(
        *(
            replace(CELLS[0], name=name, settings=SETTINGS | LONG | {"availability": kind})
            for name, kind in PATTERNS.items()
        ),
        CELLS[1],
    ),
)


def row(rule: str, lr: float, gain: float) -> dict:
    """Return a row with a step size and an accuracy that is above 0.5 by a gain."""
    accuracies = {str(seed): 0.5 + gain + 0.001 * seed * (gain != 0) for seed in range(5)}
    cells = {
        cell.name: {
            "hash": cell.hash, "options": {"local.lr": lr}, "edges": [],
            "runs": {seed: {"test_accuracy": accuracy} for seed, accuracy in accuracies.items()},
        }
        for cell in VERSION.cells
    }  # fmt: skip
    return {"rule": rule, "version": "v0", "cells": cells}


def test_figures_of_a_matrix_are_those_by_hand() -> None:
    present = np.array(
        [[1, 1, 0, 0, 0, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]], bool
    )
    seen = Participation.of(present)  # the last client never took part
    assert (seen.num_clients, seen.rounds) == (2, 10)
    assert seen.rate == pytest.approx(0.2)
    assert seen.spread == pytest.approx(0.1 / 0.2)
    assert seen.burst == pytest.approx(4 / 3)
    assert seen.absence == pytest.approx((5 + 8) / 2 / 10)
    assert seen.drift == pytest.approx((0.2 + 0.2) / 2 / 0.2)
    assert seen.absent == 0.5
    assert seen.staleness == pytest.approx((1 + 6) / 2)


def test_nobody_has_no_participation() -> None:
    with pytest.raises(DataError, match="got 0 clients that took part in 5 rounds"):
        Participation.of(np.zeros((3, 5), bool))


def test_participation_of_a_run_is_that_of_its_table(tmp_path: Path) -> None:
    experiment = VERSION.cells[0].experiment("average_participating", {}, 3)
    result = experiment.run(tmp_path)
    table = result.participation
    present = present_in(tmp_path)
    assert present.sum() == len(table)
    expected = np.array([table["client"].to_pylist().count(client) for client in range(8)])
    assert present.sum(axis=1).tolist() == expected[expected > 0].tolist()


def test_participation_of_a_trace_is_the_union_of_its_rows(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("client,from,to\n4,0,2\n4,1,3\n9,5,6\n")
    assert present_in(tmp_path / "trace.csv").astype(int).tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1]]


def test_visits_and_matrix_are_inverse() -> None:
    present = np.array([[1, 1, 0, 1], [0, 0, 1, 1]], bool)
    assert visits(present) == ((0, 0, 2), (0, 3, 4), (1, 2, 4))


@pytest.mark.parametrize("name", PATTERNS)
def test_nearest_cell_is_that_of_the_same_pattern_with_another_seed(name: str) -> None:
    cell = next(cell for cell in VERSION.cells if cell.name == name)
    present = available_in(cell.experiment("average_participating", {}, 5))
    cells = nearest(Participation.of(present), VERSION)
    assert cells[0][0].name == name
    assert "buffer" not in [each.name for each, _ in cells]  # a trace has no speeds
    assert [distance for _, distance in cells] == sorted(distance for _, distance in cells)


@pytest.mark.parametrize(("lr", "better"), [({"average_participating": 0.0001, "fedau": 0.3}, True),
                                            ({"average_participating": 0.3, "fedau": 0.0001}, False),
                                            ({"average_participating": 0.3, "fedavg": 0.3}, False)])  # fmt: skip
def test_rule_is_better_if_it_is_on_the_trace_whatever_the_rows_say(lr: dict[str, float], better: bool) -> None:
    rows = [row(rule, value, 0.1 * (rule != "average_participating")) for rule, value in lr.items()]
    cell = VERSION.cells[0]
    table = table_of(rows, VERSION, "small")
    rules = leaders(table, [cell])
    assert rules == [rule for rule in lr if rule != "average_participating"]
    present = available_in(cell.experiment("average_participating", {}, 9))
    (trial,) = tried(present, rules, rows, cell, VERSION)
    assert trial.is_better is better
    assert trial.options == {"local.lr": lr[trial.rule]}


@pytest.fixture
def advise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Calls the command with a version of small cells and rows of two rules."""
    monkeypatch.chdir(tmp_path)
    rows = [row("average_participating", 0.0001, 0.0), row("fedau", 0.3, 0.1)]
    monkeypatch.setattr(Version, "read", lambda: VERSION)
    monkeypatch.setattr("turnout.workbench.benchmark.rows.published", lambda _: rows)
    app = typer.Typer()
    commands.add_to(app)
    return lambda *words: CliRunner().invoke(app, ["advise", *words]), rows


def test_command_recommends_what_is_better_on_the_trace(advise) -> None:
    call, rows = advise
    Path("trace.csv").write_text("client,from,to\n" + "".join(f"{i % 8},{i},{i + 3}\n" for i in range(50)))
    told = call("trace.csv").stdout
    assert "clients that took part: 8\n" in told
    assert "near chance" in told
    assert "better than the plain mean by points of test accuracy: fedau +10.2 ± 0.2" in told
    assert "recommended" not in told
    assert "recommended: fedau local.lr=0.3" in call("trace.csv", "--try").stdout
    rows[:] = [row("average_participating", 0.3, 0.0), row("fedau", 0.0001, 0.1)]
    assert "recommended: the plain mean: differences are within the noise" in call("trace.csv", "--try").stdout


def test_command_without_rows_gives_no_advice(advise) -> None:
    call, rows = advise
    rows.clear()
    told = call("--availability", "markov", "--output", "picture.svg").stdout
    assert "no advice: the benchmark has no row of average_participating" in told
    assert Path("picture.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("words", [(), ("trace.csv", "--availability", "markov")])
def test_command_needs_one_source(advise, words: tuple[str, ...]) -> None:
    call, _ = advise
    result = call(*words)
    assert result.exit_code != 0
    assert "give one of RUN, TRACE.csv and --availability" in f"{result.output}{result.exception}"
