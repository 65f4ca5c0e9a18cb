"""The command line as tests call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from turnout.cli import app

SMALL = ("--model", "logistic", "data.num_clients=10", "data.alpha=1")
"""Settings of a run that takes milliseconds a round."""


@pytest.fixture(scope="session")
def small() -> tuple[str, ...]:
    return SMALL


_made_once = cache(get_command)
"""The commands, which take longer to make of their functions than most of the calls here."""


@pytest.fixture
def turnout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Calls the command line in an empty folder, as ``turnout("run", "--rounds", 3)``; threads are as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("typer.testing._get_command", _made_once)
    runner, threads = CliRunner(env={"COLUMNS": "120", "TERM": "dumb", "NO_COLOR": "1"}), torch.get_num_threads()
    yield lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])
    torch.set_num_threads(threads)
