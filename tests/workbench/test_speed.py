"""``turnout speed``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from turnout.engine import threads as crew
from turnout.workbench.speed import arithmetic, workloads
from turnout.workbench.speed.workloads import WORKLOADS

Turnout = Callable[..., Any]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "_SECONDS", 0.01)
    small = {name: replace(each, num_clients=12, rounds=3) for name, each in WORKLOADS.items()}
    monkeypatch.setattr(workloads, "WORKLOADS", small)


def test_workload_uses_the_given_settings(turnout: Turnout) -> None:
    result = turnout("speed", "W3", "--rounds", 2, "--json", "local.steps=4", "--threads", torch.get_num_threads())
    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    assert (found["workload"], found["rounds"], found["cohort"], found["parameters"]) == ("W3", 2, 5, 52_500)
    per_example = 4 * (784 * 64 + 64 * 30 + 300) + 2 * (64 * 30 + 300)
    assert found["gflop_per_update"] == pytest.approx(4 * 32 * per_example / 1e9, rel=1e-4)
    assert found["matrix_gflops"] > 0


def test_reported_threads_are_those_of_clients(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "num_processors", lambda: 2)
    for given, used in ((1, 1), (2, 2), (4, 2)):
        result = turnout("speed", "W2", "--rounds", 2, "--no-rates", "--json", "--threads", given)
        assert json.loads(result.stdout)["threads"] == used


def test_cohort_may_exceed_the_workloads_population(turnout: Turnout) -> None:
    found = json.loads(turnout("speed", "W2", "--rounds", 2, "--cohort", 15, "--no-rates", "--json").stdout)
    assert found["cohort"] == 15
    assert found["data_mb"] == pytest.approx(15 * 60 * (784 * 4 + 8) / 2**20, abs=0.1)
    assert "matrix_gflops" not in found


def test_any_experiment_can_be_timed(turnout: Turnout, small: tuple[str, ...]) -> None:
    result = turnout("speed", "--algorithm", "fedvarp", "--rounds", 3, *small, "--data", "digits")
    assert result.exit_code == 0, result.exception
    for title in (
        "client updates per second",
        "updates per second by engine",
        "data, training, server, evaluation",
        "peak memory",
        "vectorized",
    ):
        assert title in result.stdout
    assert "fedvarp" in result.stdout


def test_several_workloads_run_in_separate_processes(turnout: Turnout, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Ended:
        returncode, stdout = 0, json.dumps({"workload": "W?", "client_updates_per_s": 1234.5})

    monkeypatch.setattr(sys, "argv", ["turnout", "speed", "W2", "W3", "--rounds", "2"])
    monkeypatch.setattr(subprocess, "run", lambda command, **_: calls.append(command[1:]) or Ended)
    shown = turnout("speed", "W2", "W3", "--rounds", 2)
    assert shown.exit_code == 0
    assert "1,234" in shown.stdout
    assert calls == [["-m", "turnout", "speed", "--rounds", "2", name, "--json"] for name in ("W2", "W3")]
    Ended.returncode = 2
    failed = turnout("speed", "W2", "W3")
    assert failed.exit_code == 1
    assert "W2 failed, see above" in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("W6",), "unknown workload 'W6'"),
        (("W1", "--data", "digits"), "W1 is a workload with an algorithm and data of its own"),
        (("W1", "--rounds", "1"), "rounds: got 1, needed a whole number >= 2"),
        (("W1", "--cohort", "0"), "cohort: got 0, needed a whole number >= 1"),
        (("W1", "--threads", "0"), "threads: got 0, needed a whole number >= 1"),
        (("W1", "locall.lr=1"), "unknown setting 'locall'"),
        (("--config", "no.toml"), "no.toml: no such file"),
    ],
)
def test_invalid_usage_is_refused(turnout: Turnout, arguments: tuple[str, ...], message: str) -> None:
    result = turnout("speed", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
