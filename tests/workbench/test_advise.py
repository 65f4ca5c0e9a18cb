"""``turnout advise``: measures of participation, nearest cells, and rules that are tried on a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from tests.workbench.test_benchmark import CELLS, CHANCE, SETTINGS, SMALL
from typer.testing import CliRunner

import turnout as to
from turnout.cli.print_config import toml
from turnout.core.checks import ConfigurationError, DataError
from turnout.results.statistics import gap
from turnout.workbench import commands
from turnout.workbench.advise.advice import Participation, leaders, nearest, present_in
from turnout.workbench.advise.trials import LEAD, Stage, Trial, own_cell, strongest, tried, visits
from turnout.workbench.benchmark.cells import Version, available_in
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
    assert seen.tau_max == 8
    assert seen.tau_avg == pytest.approx((0 + 0 + 1 + 2 + 3 + 4 + 5 + 0 + 1 + 2 + 1 + 0 + sum(range(1, 9))) / 20)


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
    (trial,) = tried(Stage(present, cell), rules, rows, VERSION)
    assert trial.is_better is better
    assert trial.options == {"local.lr": lr[trial.rule]}


def test_rule_is_recommended_if_the_interval_of_its_lead_is_above_a_point() -> None:
    plain = dict.fromkeys(range(12), 0.5)
    lead = {seed: 0.52 + 0.01 * (-1) ** seed for seed in plain}
    found = gap(lead, plain)
    assert found is not None
    assert found.margin == pytest.approx(0.00664, abs=1e-5)
    trials = [
        Trial("mifa", {}, replace(found, mean=mean, p=p)) for mean, p in ((0.017, 0.01), (0.016, 0.01), (0.017, 0.06))
    ]
    assert [trial.is_better for trial in trials] == [True, False, False]
    assert LEAD == 0.01


def test_plain_mean_has_the_best_of_its_own_step_sizes_and_those_of_the_rules() -> None:
    called = []

    def accuracies(options: dict) -> dict[int, float]:
        called.append(options)
        return {0: -abs(options["local.lr"] - 0.2), 1: 0.0}

    own, others = (
        {"local.lr": 0.8, "server_lr": 1.0},
        [{"local.lr": 0.2, "gamma": 1.5}, {"local.lr": 0.8, "server_lr": 1.0}],
    )
    assert strongest(accuracies, own, others) == {0: 0.0, 1: 0.0}
    assert called == [own, {"local.lr": 0.2, "server_lr": 1.0}]


def test_one_of_two_rules_with_the_same_figures_is_a_leader() -> None:
    rows = [
        row("average_participating", 0.1, 0.0),
        row("fedau", 0.1, 0.1),
        row("fedvarp", 0.1, 0.2),
        row("mifa", 0.1, 0.2),
    ]
    assert leaders(table_of(rows, VERSION, "small"), VERSION.cells[:3]) == ["fedvarp", "fedau"]


def test_differences_within_the_noise_do_not_make_a_leader() -> None:
    rows = [
        row("average_participating", 0.1, 0.0),
        row("fedau", 0.1, 0.1),
        row("fedvarp", 0.1, 0.01),
        row("mifa", 0.1, 0.0),
    ]
    lucky = rows[3]["cells"]["chance"]["runs"]
    for seed, run in lucky.items():  # by 20 points with one seed, and equal with others
        run["test_accuracy"] = 0.5 + 1.0 * (seed == "0")
    assert leaders(table_of(rows, VERSION, "small"), VERSION.cells[:1]) == ["fedau", "fedvarp", "mifa"]


def test_trace_with_ones_own_data_keeps_its_clients_and_the_data_of_one_split() -> None:
    present = np.random.default_rng(0).random((7, 30)) < 0.3
    stage = Stage(present, VERSION.cells[0], own_cell(SETTINGS | LONG | {"seed": 3}))
    experiments = [stage.experiment("average_participating", {"local.lr": 0.1}, seed) for seed in (0, 2)]
    expected = np.vstack([present, np.zeros((1, 30), bool)])  # the eighth client of the data never came
    seen = [available_in(experiment)[:, :30].tolist() for experiment in experiments]
    begun = [[first for first in range(30) if np.roll(expected, first, axis=1).tolist() == each] for each in seen]
    assert [len(each) for each in begun] == [1, 1]
    assert begun[0] != begun[1]  # each seed begins with another round of the trace
    first, second = (experiment.data.train for experiment in experiments)
    assert first.x.equal(second.x)
    with pytest.raises(
        ConfigurationError, match=r"got 8 clients, needed those of the trace, 9: write data.num_clients=9"
    ):
        Stage(np.ones((9, 30), bool), VERSION.cells[0], own_cell(SETTINGS)).experiment("fedau", {}, 0)


def test_own_data_are_a_cell_whose_validation_examples_and_step_size_are_those_of_the_settings() -> None:
    settings = {
        **SETTINGS,
        "local": {"steps": 2, "lr": 0.01},
        "algorithm": "fedau",
        "availability": "markov",
        "seed": 3,
    }
    cell = own_cell(settings)
    assert not {"algorithm", "availability", "seed"} & cell.settings.keys()
    assert VERSION.axes("fedavg", cell)["local.lr"] == (0.005, 0.01, 0.02)
    assert VERSION.options("fedprox") == {"cohort_size": None}
    assert cell.settings["data"]["validation_fraction"] == 0.2
    held = [{"validation_fraction": 0.1}, {"validation_clients": 2}, {}]
    whole = {name: value for name, value in SETTINGS["data"].items() if name != "validation_fraction"}
    cells = [own_cell({**SETTINGS, "data": {**whole, **options}}).settings["data"] for options in held]
    assert [data.get("validation_fraction", 0.0) for data in cells] == [0.1, 0.0, 0.2]


def test_step_size_on_ones_own_data_is_tuned_whatever_that_of_the_nearest_cell_is() -> None:
    present = np.ones((8, 30), bool)
    rows = [row(rule, 0.001, 0.1 * (rule == "fedavg")) for rule in ("average_participating", "fedavg")]
    own = own_cell(SETTINGS | {"local": {"steps": 2, "batch_size": 8, "lr": 0.01}, "rounds": 12})
    version = replace(VERSION, tuning_budget={"small": 10_000})
    (trial,) = tried(Stage(present, VERSION.cells[0], own), ["fedavg"], rows, version)
    assert float(str(trial.options["local.lr"])) >= 0.04  # with so small a step, larger ones are better


def test_rare_clients_of_a_trace_hold_certain_labels_if_rates_are_related_to_them() -> None:
    data = {**SETTINGS["data"], "partition": {"name": "dirichlet", "alpha": 0.1}, "empty": "drop"}
    cell = replace(CELLS[0], settings={**SETTINGS, "rounds": 200, "data": data})
    present = np.random.default_rng(1).random((40, 200)) < np.linspace(0.05, 0.9, 40)[:, None]
    options = {"local.lr": 0.1}
    counts = cell.experiment("fedau", options, 2).data.label_counts()
    rates = to.availability.Bernoulli(correlated_with_labels=0.1).bind(len(counts), counts, 2).rates
    found = {
        related: available_in(Stage(present, cell, related=related).experiment("fedau", options, 2)).mean(axis=1)
        for related in (False, True)
    }
    assert sorted(found[True]) == sorted(found[False])
    assert np.argsort(found[True]).tolist() == np.argsort(rates).tolist()
    assert np.argsort(found[False]).tolist() != np.argsort(rates).tolist()


def test_clients_with_names_have_no_place_among_ones_own_data(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("client,from,to\nann,0,2\nbob,1,3\n")
    assert present_in(tmp_path / "trace.csv").shape == (2, 3)
    with pytest.raises(DataError, match=r"its clients have names, needed the numbers 0, 1, ..."):
        present_in(tmp_path / "trace.csv", everyone=True)


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
    told = call("trace.csv", "--try").stdout
    assert told.count("recommended: fedau local.lr=0.3") == 2
    assert "if rates are unrelated to labels:\n  fedau: +" in told
    assert "if clients with some labels are rarely there:\n  fedau: +" in told
    rows[:] = [row("average_participating", 0.3, 0.0), row("fedau", 0.0001, 0.1)]
    told = call("trace.csv", "--try").stdout
    assert (
        told.count(
            "recommended: the plain mean: no rule is ahead by more than 1 point with 95 % confidence, and leads above"
        )
        == 2
    )


def test_command_tries_rules_with_ones_own_data(advise) -> None:
    call, _ = advise
    Path("trace.csv").write_text("client,from,to\n" + "".join(f"{i % 8},{i},{i + 3}\n" for i in range(50)))
    Path("mine.toml").write_text(toml(SETTINGS | LONG))
    told = call("trace.csv", "--config", "mine.toml").stdout
    assert "with your data:\n  fedau: " in told
    assert "recommended: " in told


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
