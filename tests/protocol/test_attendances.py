"""Which clients are asked for the phases after training, and of which round."""

from types import SimpleNamespace

import numpy as np
import pytest

from turnout.protocol.attendances import Attendances
from turnout.protocol.pace import Choose


class Recorded:
    """An attendance that records the number of its round, and asks whoever it is given."""

    def __init__(self, masking, seed):
        self.seed, self.number = seed

    def ask(self, phase, clients):
        return list(clients)

    def used(self):
        return [self.number]

    def state(self):
        return {"number": np.array(self.number)}

    def restore(self, state):
        assert int(state["number"]) == self.number


@pytest.fixture
def attendances(monkeypatch):
    """Of two phases, where client 3 may not take part in a step."""
    participations = SimpleNamespace(may=lambda clients, _: clients != 3)
    monkeypatch.setattr("turnout.protocol.attendances.Attendance", Recorded)
    extra = SimpleNamespace(names=("share", "mask"), masking=None)
    return Attendances(extra, 7, participations)  # type: ignore[arg-type]


def test_clients_without_leave_and_barred_ones_are_not_asked_for_the_first_phase(attendances):
    attendances.barred.add(5)
    assert attendances.ask(Choose(None, (1, 3, 5, 6), phase="share"), 4) == [1, 6]
    assert attendances.ask(Choose(None, (1, 3, 5, 6), phase="mask"), 4) == [1, 3, 5, 6]  # the first phase has decided


def test_round_of_all_clients_has_the_number_of_its_version_and_a_group_its_own(attendances):
    attendances.ask(Choose(None, (1,), phase="share"), 4)
    attendances.ask(Choose(None, (2,), phase="share", group=9), 4)
    assert {group: (of.seed, of.number) for group, of in attendances.of.items()} == {0: (7, 4), 9: (7, 9)}
    state = attendances.state()
    attendances.of = {}
    attendances.restore(state | {"other": np.zeros(1)}, 4)
    assert {group: of.number for group, of in attendances.of.items()} == {0: 4, 9: 9}


def test_attendance_of_ended_groups_is_discarded(attendances):
    for group in (8, 9):
        attendances.ask(Choose(None, (1,), phase="share", group=group), 4)
    attendances.keep({9})
    assert list(attendances.of) == [9]
