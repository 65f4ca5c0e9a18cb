"""GPUs on the command line, simulated."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from turnout.cli.commands.compare import CompareOptions
from turnout.core.checks import ConfigurationError

Turnout = Callable[..., Any]


def settings(device: str) -> Any:
    """Return settings of a run on a device, without checking that it exists."""
    return SimpleNamespace(numbers=lambda: {"device": device})


@pytest.mark.parametrize(
    ("device", "jobs", "at_once", "devices"),
    [
        ("cuda", None, None, ("cuda:0", "cuda:1", "cuda:2")),
        ("cuda", 6, 6, ("cuda:0", "cuda:1", "cuda:2")),
        ("cuda:0, cuda:2", None, None, ("cuda:0", "cuda:2")),
        ("cuda:1", None, 1, ()),
        ("cpu", None, None, ()),
    ],
)
def test_runs_are_distributed_over_gpus(
    device: str, jobs: int | None, at_once: int | None, devices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All GPUs, or the listed ones; every experiment names the one of its process."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    options = CompareOptions(device=device, jobs=jobs)
    named = options.device_of_runs()
    assert named == ("cuda" if "," in device else device)
    resources = options.resources([settings(str(named))], device)
    assert (resources.jobs, resources.devices) == (at_once, devices)
    with pytest.raises(ConfigurationError, match="devices: got 'cuda:3', needed one of cuda:0, cuda:1, cuda:2"):
        options.resources([settings("cuda")], "cuda:0,cuda:3")


def test_single_run_has_one_device(turnout: Turnout) -> None:
    result = turnout("run", "--device", "cuda:0,cuda:1")
    assert result.exit_code == 2
    assert "device: got 'cuda:0,cuda:1', needed one device; torchrun has one run use several" in result.stderr
