"""Traces of who was there: a client is in the rounds for which it could have been chosen."""

from types import SimpleNamespace
from typing import Any

import pytest

from turnout.deployment.server.replay import Visits


def entry(kind: str, time: float) -> Any:
    return SimpleNamespace(kind=kind, client=7, time=time, task=None)


@pytest.mark.parametrize(
    ("running", "after", "stay"),
    [
        (True, 3, (1, 4)),  # others are still at work in round 3, which the client was there for
        (True, 4, (1, 4)),  # its leaving ends round 3, and it is not there for round 4
        (False, 3, (1, 3)),  # the cohort of round 3 is not chosen yet
    ],
)
def test_a_client_that_leaves_is_in_no_later_round(running: bool, after: int, stay: tuple[int, int]) -> None:
    visits, nothing = Visits(), SimpleNamespace(outcomes=(), assigned=())
    driver: Any = SimpleNamespace(version=0, roster=SimpleNamespace(bans={}))
    visits.note(driver, entry("join", 0.0), nothing, version=0, running=True)  # type: ignore[arg-type]
    driver.version = after
    visits.note(driver, entry("leave", 9.0), nothing, version=3, running=running)  # type: ignore[arg-type]
    assert visits.stays == [(7, 0.0, 9.0, *stay)]
