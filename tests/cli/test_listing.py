"""``turnout list``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnout.cli.names import LISTED

Turnout = Callable[..., Any]


@pytest.mark.parametrize("kind", LISTED)
def test_every_name_is_listed(kind: str, turnout: Turnout) -> None:
    result = turnout("list", kind)
    assert result.exit_code == 0, result.output
    named = {line.split()[0] for line in result.stdout.splitlines() if line.strip()}
    assert set(LISTED[kind]) <= named


def test_options_and_their_defaults_are_listed(turnout: Turnout) -> None:
    assert "cutoff=50  " in turnout("list", "algorithms").stdout
    assert "batch_size=16" in turnout("list", "algorithms").stdout
    assert "correlated_with_labels=0.1" in turnout("list", "availability").stdout
    assert "table=?" in turnout("list", "availability").stdout
    assert "model.hidden=256,64" in turnout("list", "data").stdout
    speeds = " ".join(turnout("list", "speeds").stdout.split())
    assert 'compute={kind="constant", seconds=1.0}' in speeds
    assert 'upload={kind="constant", seconds=0.0}' in speeds
    assert "evaluate_every=10" in turnout("list", "settings").stdout


def test_all_kinds_are_listed_by_default(turnout: Turnout) -> None:
    shown = turnout("list").stdout
    for kind in (*LISTED, "settings"):
        assert f"{kind}: " in shown


RECIPE = '''
from turnout.algorithms.compose import compose
from turnout.base.algorithm import ALGORITHMS

@ALGORITHMS.register
def {name}(local=None, *, bend: float = 0.25, also=()):
    """Bends more than others."""
    return compose(also=also, name="{name}")
'''
GUARD = '''
from dataclasses import dataclass, replace
from turnout.base import Guard

@dataclass(frozen=True)
class Scaled(Guard, name="{name}"):
    """Scales updates in the test."""
    by: float = 0.5

    def apply(self, report, task, memory, clients):
        return replace(report, delta=report.delta * self.by)
'''


def test_new_recipe_is_listed_and_runs(turnout: Turnout, built_in: Any, small: tuple[str, ...]) -> None:
    built_in("turnout.algorithms", "fresh_in_listing", RECIPE.format(name="fresh_in_listing"))
    shown = turnout("list", "algorithms").stdout
    assert "Bends more than others." in shown
    assert "bend=0.25" in shown
    result = turnout("run", "--algorithm", "fresh_in_listing", "algorithm.bend=1", *small, "--rounds", "1", "--quiet")
    assert result.exit_code == 0, result.output


def test_new_guard_is_listed_and_runs(turnout: Turnout, built_in: Any, small: tuple[str, ...]) -> None:
    built_in("turnout.pieces.guard", "scaled_in_listing", GUARD.format(name="scaled_in_listing"))
    shown = turnout("list", "guards").stdout
    assert "Scales updates in the test." in shown
    assert "by=0.5" in shown
    result = turnout("run", "also.scaled_in_listing.by=0.1", *small, "--rounds", "1", "--quiet", "--print-config")
    assert result.exit_code == 0, result.output
    result = turnout("run", "also.scaled_in_listing.by=0.1", *small, "--rounds", "1", "--quiet")
    assert result.exit_code == 0, result.output


def test_unknown_kind_is_refused(turnout: Turnout) -> None:
    result = turnout("list", "algorithm")
    assert result.exit_code == 2
    assert "Error: unknown kind 'algorithm': did you mean 'algorithms'?" in result.stderr
