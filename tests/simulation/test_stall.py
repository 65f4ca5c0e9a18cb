"""Tests of the detection of runs that wait for clients in vain."""

import pytest

from turnout import ConfigurationError
from turnout.protocol.pace import Buffered
from turnout.simulation.stall import PATIENCE, Stall


@pytest.mark.parametrize(("by_version", "longer"), [(True, False), (False, True)])
def test_run_without_work_ends(by_version, longer):
    stall = Stall(by_version)
    for _ in range(PATIENCE):
        stall.idle(7.5)
    with pytest.raises(
        ConfigurationError, match=r"no client has worked for 10000 rounds .* up to second 7\.5"
    ) as raised:
        stall.idle(7.5)
    assert ("longer rounds" in str(raised.value)) is longer


def test_work_starts_the_count_anew():
    stall = Stall(by_version=True)
    for _ in range(PATIENCE):
        stall.idle(0.0)
    stall.working()
    stall.idle(0.0)
    assert stall.idle_rounds == 1


def test_first_step_does_not_wait_for_ever():
    stall, pace = Stall(by_version=True), Buffered(1, starts_with_all=True).bind(2)
    for _ in range(PATIENCE):
        stall.waited(pace)
    with pytest.raises(
        ConfigurationError, match=r"2 clients sent none for 10000 rounds of availability, client 0 among"
    ):
        stall.waited(pace)
    stall.stepped()
    stall.waited(pace)
