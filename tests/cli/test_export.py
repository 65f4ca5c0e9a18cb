"""``turnout export``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from safetensors.torch import load_file

import turnout as to

Turnout = Callable[..., Any]


def test_run_is_exported_as_named_tensors(turnout: Turnout, small: Sequence[str]) -> None:
    turnout(
        "run", "--algorithm", "fedavg_p", "--rounds", 1, "--folder", "run", *small, "--model", "mlp", "model.hidden=4"
    )
    found = turnout("export", "run", "model.safetensors")
    assert found.exit_code == 0, found.output
    assert "model.safetensors: 4 tensors, 310 numbers, after 1 round\n" in found.stdout
    turnout("export", "run", "client.safetensors", "--client", 4)
    result = to.load("run")
    for file, client in (("model.safetensors", None), ("client.safetensors", 4)):
        assert all(torch.equal(load_file(file)[name], value) for name, value in result.state_dict(client).items())


def test_runs_without_model_are_refused(turnout: Turnout, small: Sequence[str]) -> None:
    turnout("run", "--algorithm", "fedavg", "--rounds", 1, "--folder", "run", *small)
    found = turnout("export", "run", "model.safetensors", "--client", 0)
    assert found.exit_code == 2
    assert "clients have no models of their own" in found.output
    assert turnout("export", "nowhere", "model.safetensors").exit_code == 2


def test_help_shows_loading_with_torch(turnout: Turnout) -> None:
    assert "load_state_dict(load_file(" in turnout("export", "--help").stdout
