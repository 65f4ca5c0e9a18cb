"""FOLB and related algorithms on the command line, and random amounts of work."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnout.cli.layers import override, read
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout.pieces.local import Prox, Sgd, UniformWork
from turnout.pieces.selection import ByAlignmentAndInexactness, ByGradientNorm, TwoCohorts, WithReplacement
from turnout.record.query import History

Turnout = Callable[..., Any]
NAMES = ("folb", "folb_two_set", "fednu")
WORK = '{kind="uniform", least=1, most=20}'


def settings(*overrides: str) -> Settings:
    return Settings.of(*map(override, overrides))


@pytest.mark.parametrize("name", NAMES)
def test_recipes_run_with_their_defaults_and_record_measurements(
    name: str, turnout: Turnout, small: Sequence[str]
) -> None:
    """10 of 10 available clients, on the built-in data."""
    result = turnout("run", "--algorithm", name, "--availability", "everyone", "--rounds", 2, *small)
    assert result.exit_code == 0, result.output
    history = History.load(f"runs/{name}-digits-0")
    assert ("bytes_measured" in history.column_names) == (name in ("folb_two_set", "fednu"))
    made = json.loads(Path(f"runs/{name}-digits-0/config.json").read_text())["algorithm"]
    assert made["name"] == name


def test_options_reach_the_pieces() -> None:
    psi = settings("algorithm=folb_heterogeneous", "algorithm.psi=0.1", "algorithm.cohort_size=4").algorithm()
    assert psi.weighting[0].psi == 0.1  # type: ignore[attr-defined]
    assert psi.selection.cohort_size == 4  # type: ignore[attr-defined]
    assert settings("algorithm=fednu", "algorithm.by=norm").algorithm().selection == ByGradientNorm(10)
    by = settings(
        "algorithm=fednu", "algorithm.by=alignment_and_inexactness", "algorithm.psi=3", "algorithm.cohort_size=2"
    )
    assert by.algorithm().selection == ByAlignmentAndInexactness(3.0, 2)
    assert settings("algorithm=fedprox", "algorithm.mu=1").algorithm().corrections == (Prox(1.0),)
    assert settings("algorithm=folb", "also.prox.mu=1").algorithm().corrections == (Prox(1.0),)
    assert len(settings("algorithm=folb", "algorithm.data_weighted=true").algorithm().weighting) == 3
    assert len(settings("algorithm=fednu", "algorithm.signs=yes").algorithm().weighting) == 2
    replaced = settings("algorithm=folb", "selection=with_replacement", "selection.cohort_size=5").algorithm()
    assert replaced.selection == WithReplacement(5)
    assert settings("selection=two_cohorts").algorithm().selection == TwoCohorts(10)


@pytest.mark.parametrize("unit", ["epochs", "steps"])
def test_random_work_is_written_on_the_command_line_and_in_a_file(unit: str, tmp_path: Path) -> None:
    none = ["local.steps=none"] if unit == "epochs" else []
    local = settings(f"local.{unit}={WORK}", *none).algorithm().local
    assert local == Sgd(**{"steps": None, unit: UniformWork(1, 20)})
    path = tmp_path / "a.toml"
    path.write_text(f"[local]\n{unit} = {WORK}\n" + ('steps = "none"\n' if none else ""))
    assert Settings.of(read(path)).algorithm().local == local
    path.write_text(f'[local.{unit}]\nkind = "uniform"\nmost = 20\n' + ('[local]\nsteps = "none"\n' if none else ""))
    assert Settings.of(read(path)).algorithm().local == local


def test_random_work_runs_and_is_saved(turnout: Turnout, small: Sequence[str]) -> None:
    arguments = (f"local.epochs={WORK.replace('20', '3')}", "local.steps=none", "local.batch_size=10")
    for name in ("fednova", "folb"):
        result = turnout("run", "--algorithm", name, "--rounds", 2, "--folder", name, *arguments, *small)
        assert result.exit_code == 0, result.output
    made = json.loads(Path("folb/config.json").read_text())["algorithm"]["local"]
    assert made["epochs"] == {"kind": "UniformWork", "least": 1, "most": 3}
    assert turnout("run", "--resume", "folb", "--rounds", 3).exit_code == 0
    result = turnout("run", "--resume", "folb", "local.epochs.most=4")
    assert "algorithm.local.epochs.most: 3 and 4" in result.stderr


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (('local.epochs={kind="unifrom"}',), "unknown work 'unifrom': did you mean 'uniform'?"),
        (("local.epochs={least=1}",), "local.epochs.kind: got None, needed the name of a work: share_of_work"),
        (('local.epochs={kind="uniform", lest=1}',), "unknown option 'local.epochs.lest' of UniformWork: did you mean"),
        (('local.epochs={kind="uniform", least=0}',), "local.epochs.least: got 0, needed a whole number >= 1"),
        (('local.steps={kind="uniform", most="many"}',), "local.steps.most: got 'many', needed a whole number"),
        (
            ('local.steps={kind="uniform", least=5, most=4}',),
            "local.steps.most: got 4, needed a whole number >= least = 5",
        ),
        (
            ("local.steps=unifrm",),
            "local.steps: got 'unifrm', needed a whole number, 'share_of_work' or 'time_budget' or 'uniform', by name or as",
        ),
        (('local.lr={kind="uniform"}',), "unknown schedule 'uniform'"),
        (('local.epochs={kind="uniform"}',), "local: steps and epochs: got steps=5 and epochs=UniformWork("),
        (("algorithm=folbb",), "unknown algorithm 'folbb': did you mean 'folb'?"),
        (("algorithm=folb", "algorithm.psi=1"), "unknown option 'algorithm.psi' of folb"),
        (("algorithm=folb_heterogeneous", "algorithm.psi=-1"), "algorithm.psi: got -1.0, needed a finite number >= 0"),
        (("algorithm=fednu", "algorithm.by=norms"), "unknown value of by 'norms': did you mean 'norm'?"),
        (
            ("algorithm=fednu", "algorithm.by=norm", "algorithm.signs=true"),
            "asks no client for gradients before the round",
        ),
        (
            ("algorithm=folb_two_set", "selection=uniform"),
            "DivideBySecondCohort needs the gradients of a second cohort",
        ),
        (("algorithm=fednova", "local.momentum=0.9"), "FedNova divides an update by its number of steps"),
        (("algorithm=fednova", "also.prox.mu=0.1"), "with Prox the gradients of a round have unequal weights"),
    ],
)
def test_invalid_settings_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings(*overrides)
    assert message in str(caught.value)


def test_cohort_larger_than_the_federation_is_refused_at_the_start(turnout: Turnout) -> None:
    result = turnout(
        "run", "--algorithm", "folb", "--rounds", 1, "data.num_clients=5", "data.alpha=1", "algorithm.cohort_size=10"
    )
    assert result.exit_code == 2
    assert "cohort_size: got 10, needed at most the number of clients, 5" in result.stderr
