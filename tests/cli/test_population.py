"""Settings of the population other than availability."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnout.cli.layers import override
from turnout.cli.settings import Settings
from turnout.core.checks import ConfigurationError
from turnout.evaluation.appeal import AppealMetrics
from turnout.population import Byzantine, Everyone, GivenRequirement, Opting, Population, WarmUp, sign_flipping
from turnout.record.query import History


def settings(*overrides: str) -> Settings:
    return Settings.of(*map(override, overrides))


def test_every_setting_reaches_the_population() -> None:
    found = settings(
        "availability=everyone",
        "population.requirement={kind='warm_up', steps=50, measure='accuracy', lr=0.05}",
        "population.opting.mandatory_rounds=7",
        "population.opting.comes_back=false",
        "population.behavior={kind='byzantine', fraction=0.05, inflation=10}",
    ).population()
    requirement = WarmUp(50, measure="accuracy", lr=0.05)
    assert found == Population(
        Everyone(), requirement=requirement, opting=Opting(7, False), behavior=Byzantine(0.05, 10)
    )


def test_values_per_client_and_other_attacks() -> None:
    found = settings(
        "population.requirement={kind='given', table=[0.5, 1.0]}", "population.behavior={kind='sign_flipping'}"
    ).population()
    assert found.requirement == GivenRequirement((0.5, 1.0))
    assert found.behavior == sign_flipping()


def test_columns_about_appeal_are_recorded() -> None:
    assert settings().numbers().get("appeal") is None
    assert settings("appeal={}").numbers()["appeal"] == AppealMetrics()
    assert settings("appeal.tuning_steps=5").numbers()["appeal"] == AppealMetrics(5)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("population.opting.mandatory=3", "unknown option 'population.opting.mandatory' of Opting: did you mean"),
        (
            "population.optin.mandatory_rounds=3",
            "unknown option 'population.optin' of Population: did you mean 'opting'",
        ),
        ("population.behavior.fraction=0.1", "population.behavior.kind: got None, needed the name of a behavior"),
        ("population.requirement={kind='warmup'}", "unknown requirement 'warmup': did you mean 'warm_up'"),
        ("population=many", "population: got 'many', needed a table of options"),
    ],
)
def test_invalid_population_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings(override)


@pytest.mark.parametrize("name", ["maxfl", "mw_fed"])
def test_recipes_run_with_their_defaults(name: str, turnout: Callable[..., Any], tmp_path: Path) -> None:
    result = turnout("run", "--algorithm", name, "--rounds", "2", "--folder", tmp_path / "run", "appeal={}")
    assert result.exit_code == 0, result.output
    assert f"{name}" in result.stdout
    assert "appeal_train" in History.load(tmp_path / "run").column_names
