"""One run in several processes of torchrun."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnout.core.checks import CheckpointError
from turnout.record.checkpoint import load

from ..children import Child, command_line

Turnout = Callable[..., Any]

SETTINGS = ["--algorithm", "fedau", "--data", "digits", "--model", "logistic", "--checkpoint-every", "1"]


def start(folder: Path, *arguments: str) -> list[Child]:
    """The two processes of a run."""
    pytest.importorskip("sklearn", reason="digits come with scikit-learn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return [
        command_line(folder, "run", *arguments, **common, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)
    ]


def saved(folder: Path) -> int:
    """How many rounds are saved; 0 also while a checkpoint is being replaced."""
    try:
        return load(folder)[1]["version"]
    except CheckpointError:
        return 0


def begun(running: list[Child], folder: Path, rounds: int = 1) -> None:
    """Wait until so many rounds are saved."""
    running[0].wait_for(lambda: saved(folder) >= rounds)


def test_one_process_prints_and_a_lost_process_costs_no_run(turnout: Turnout, tmp_path):
    running = start(tmp_path, *SETTINGS, "--rounds", "100000", "--folder", "run")
    begun(running, tmp_path / "run")
    running[1].signal(signal.SIGTERM)
    (code, out, err), (other, *silence) = (child.ended() for child in running)
    stopped = load(tmp_path / "run")[1]["version"]
    assert (code, other) == (130, 130)
    assert err.count("fedau on digits: 100 clients") == 1
    assert f"stopped after round {stopped} of 100000, all saved" in err
    assert [out, *silence] == ["", "", ""]

    running = start(tmp_path, "--resume", "run", "--checkpoint-every", "1", "--quiet")
    begun(running, tmp_path / "run", stopped + 1)
    running[1].signal(signal.SIGKILL)
    (code, _, err), (killed, *silence) = (child.ended() for child in running)
    assert (code, killed) == (1, -signal.SIGKILL)
    assert err.startswith("Error: another process of this run was lost (")
    assert "go on from the last checkpoint with: turnout run --resume run" in err
    assert silence == ["", ""]

    rounds = load(tmp_path / "run")[1]["version"] + 1
    result = turnout("run", "--resume", str(tmp_path / "run"), "--rounds", str(rounds))
    assert result.exit_code == 0, result.output
    assert f"after {rounds} rounds" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--algorithm", "fedua"], "did you mean"),
        (["compare", "fedau"], "torchrun is for turnout run"),
    ],
)
def test_invalid_usage_is_printed_once(arguments, message, turnout: Turnout, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    first = turnout(*arguments)
    monkeypatch.setenv("RANK", "1")
    second = turnout(*arguments)
    assert (first.exit_code, second.exit_code) == (2, 2)
    assert message in first.output
    assert second.output == ""
