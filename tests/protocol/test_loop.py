"""The loop over the actions of a pace, with a driver that records its calls."""

from types import SimpleNamespace
from typing import Any

import pytest

from turnout.protocol.loop import carry_out, use
from turnout.protocol.pace import Ask, Drop, Gather, Ignore, SetTimer, Step

STEP = Step(3, (0, 1, 2), (5, 6, 7), (3, 2, 3))


class Source:
    def __init__(self, *actions):
        self.actions = list(actions)

    def next(self, time):
        assert time == 2.0
        return self.actions.pop(0) if self.actions else None


class Notes:
    """A driver; reports on `bad` tasks raise."""

    def __init__(self, bad=(), blames=True):
        self.notes: list[Any] = []
        self.bad, self.blames = bad, blames

    def ask(self, ask):
        self.notes.append(ask)

    def dropped(self, drop):
        self.notes.append(drop)

    def timer(self, timer):
        self.notes.append(timer)

    def reports_of(self, coordinator, batch) -> Any:
        for task in batch.tasks:
            if task in self.bad:
                raise KeyError(task)
        return list(batch.tasks)

    def stepped(self, action, stepped):
        self.notes.append((action.tasks, stepped))

    def unusable(self, error, action):
        return [task for task in action.tasks if task == error.args[0]] if self.blames else None


def server() -> Any:
    return SimpleNamespace(batch=lambda action: action, take=lambda batch, reports: (batch.version, reports))


def test_actions_are_executed_up_to_one_that_needs_a_model():
    ask, drop, timer, gather = (
        Ask((3,), (5,), 3),
        Drop((2,), (7,), "late"),
        SetTimer(1, 9.0),
        Gather("measure", (), (), ()),
    )
    driver = Notes()
    source: Any = Source(ask, Ignore(9, 9, "unknown"), drop, timer, gather, STEP, ask)
    assert carry_out(source, driver, 2.0) == gather
    assert driver.notes == [ask, drop, timer]
    assert carry_out(source, driver, 2.0) == STEP
    assert carry_out(source, driver, 2.0) is None
    assert driver.notes == [ask, drop, timer, ask]


def test_step_omits_reports_that_raise():
    driver = Notes(bad=(0, 2))
    assert use(server(), driver, STEP, driver) == (3, [1])
    drops = [Drop([0], [5], "unusable"), Drop([2], [7], "unusable")]
    assert driver.notes == [*drops, ((1,), (3, [1]))]


@pytest.mark.parametrize(("blames", "drops"), [(False, True), (True, False)])
def test_error_without_responsible_report_is_raised(blames, drops):
    driver = Notes(bad=(1,), blames=blames)
    with pytest.raises(KeyError):
        use(server(), driver, STEP, driver if drops else None)
    assert driver.notes == []
