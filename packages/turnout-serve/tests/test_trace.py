"""Traces of who was there: a client is in the rounds for which it could have been chosen."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnout.core.checks import CheckpointError
from turnout_serve.server.journal import trace
from turnout_serve.server.journal.trace import Visits, write_trace


def entry(kind: str, time: float) -> Any:
    return SimpleNamespace(kind=kind, sender=7, time=time, task=None)


@pytest.mark.parametrize(
    ("running", "after", "stay"),
    [
        (True, 3, (1, 4)),  # others are still at work in round 3, which the client was there for
        (True, 4, (1, 4)),  # its leaving ends round 3, and it is not there for round 4
        (False, 3, (1, 3)),  # the cohort of round 3 is not chosen yet
    ],
)
def test_client_that_left_is_in_no_later_round(running: bool, after: int, stay: tuple[int, int]) -> None:
    visits, nothing = Visits(), SimpleNamespace(outcomes=(), assigned=())
    driver: Any = SimpleNamespace(version=0, roster=SimpleNamespace(bans={}))
    visits.note(driver, entry("join", 0.0), nothing, version=0, running=True)  # type: ignore[arg-type]
    driver.version = after
    visits.note(driver, entry("leave", 9.0), nothing, version=3, running=running)  # type: ignore[arg-type]
    assert visits.stays == [(7, 0.0, 9.0, *stay)]


def test_full_disk_leaves_earlier_traces_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visits = SimpleNamespace(tasks=[(0, 2.0)], stays=[(0, 0.0, 9.0, 0, 3)])
    driver = SimpleNamespace(
        setting=SimpleNamespace(pace=SimpleNamespace(steps_are_rounds=False)), roster=SimpleNamespace(num_clients=1)
    )
    replayed: Any = SimpleNamespace(driver=driver, seconds=9.0, visits=visits)
    paths, _ = write_trace(replayed, tmp_path)
    before, write = [path.read_text() for path in paths], trace._write

    def full(path: Path, **options: Any) -> None:
        if "speed" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, **options)

    monkeypatch.setattr(trace, "_write", full)
    visits.stays = [(0, 0.0, 5.0, 0, 2)]
    with pytest.raises(CheckpointError, match="No space left"):
        write_trace(replayed, tmp_path)
    assert [path.read_text() for path in paths] == before
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in paths}
