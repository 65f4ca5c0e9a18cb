"""Synchronous pace: the protocol under any order of events, and each rule by example."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from tests.protocol.pace.ledger import Ledger, N

from turnout.base import enlarged_size
from turnout.protocol.pace import Ask, Choose, Drop, Ignore, Rounds, SetTimer, Step


class RoundsLedger(Ledger):
    @initialize(deadline=st.none() | st.floats(0.5, 9.0), factor=st.sampled_from([1.0, 1.3, 2.0, 5.0]))
    def begin(self, deadline, factor):
        self.options = Rounds(deadline, factor)
        self.pace = self.fresh()
        self.asked = 0
        self.do(self.pace.start(0.0))

    def fresh(self):
        return self.options.bind(N)

    def answer(self, clients):
        self.asked = len(clients)
        super().answer(clients)

    def check_step(self, step):
        assert set(step.versions) <= {step.version}  # nothing is ever stale
        assert len(step.tasks) <= max(1, int(self.asked / self.options.over_selection + 1e-9))
        assert not self.open

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def a_timer_runs_out(self, data):
        timer, time = data.draw(st.sampled_from(self.timers))
        self.time = max(self.time, time)
        steps, running = len(self.steps), self.pace.running  # type: ignore[attr-defined]
        self.do(self.pace.expired(self.time, timer))
        assert len(self.steps) == steps + (running and timer == steps)  # timers of earlier rounds do nothing

    @invariant()
    def a_round_runs_while_somebody_works(self):
        if self.open:
            assert self.pace.running  # type: ignore[attr-defined]
        if self.wanted is not None:
            assert not self.open

    def teardown(self):
        if self.timers and self.pace.running:  # type: ignore[attr-defined]
            self.do(self.pace.expired(self.timers[-1].time, self.pace.version))
        super().teardown()


RoundsLedger.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestProtocol = RoundsLedger.TestCase


def begun(clients, **options):
    """Return a round in which `clients` received tasks at second 10, and its actions."""
    pace = Rounds(**options).bind(99)
    assert pace.start(0.0) == [Choose(None, (), pace.options.over_selection)]
    return pace, pace.chosen(10.0, clients)


def test_round_ends_with_the_last_report():
    pace, told = begun([3, 5])
    assert told == [Ask(range(2), [3, 5], 0)]
    assert pace.reported(11.0, 5, 1, 0) == []
    assert pace.reported(12.0, 3, 0, 0) == [Step(0, (1, 0), (5, 3), (0, 0)), Choose(None)]
    assert pace.version == 1


def test_deadline_ends_a_round_and_stops_late_clients():
    pace, told = begun([3, 5, 8], deadline=4.0)
    assert told == [Ask(range(3), [3, 5, 8], 0), SetTimer(0, 14.0)]
    pace.reported(11.0, 5, 1, 0)
    assert pace.expired(14.0, 0) == [Drop([0, 2], [3, 8], "late"), Step(0, (1,), (5,), (0,)), Choose(None)]
    assert pace.reported(15.0, 3, 0, 0) == [Ignore(0, 3, "ended")]
    assert pace.expired(15.0, 0) == []


def test_over_selection_uses_the_fastest_clients():
    pace, _ = begun([1, 2, 3, 4], over_selection=1.5)
    pace.reported(11.0, 4, 3, 0)
    told = pace.reported(12.0, 1, 0, 0)
    assert told == [Drop([1, 2], [2, 3], "late"), Step(0, (3, 0), (4, 1), (0, 0)), Choose(None, (), 1.5)]


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.3, 1.5, 2.0, 3.7])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 100, 1000])
def test_enlarged_cohort_needs_the_original_number_of_reports(size, factor):
    asked = enlarged_size(size, factor)
    assert size * factor - 1e-6 <= asked < size * factor + 1
    pace = Rounds(over_selection=factor).bind(10_000)
    pace.chosen(0.0, list(range(asked)))
    for task in range(size - 1):
        assert pace.reported(1.0, task, task, 0) == []
    told = pace.reported(1.0, size - 1, size - 1, 0)
    assert isinstance(told[-2], Step)
    assert len(told[-2].tasks) == size


def test_round_ends_when_no_client_remains():
    pace, _ = begun([1, 2, 3])
    pace.reported(11.0, 1, 0, 0)
    assert pace.died(12.0, 2, 1) == [Drop([1], [2], "died")]
    assert pace.left(13.0, [3, 9]) == [Drop([2], [3], "left"), Step(0, (0,), (1,), (0,)), Choose(None)]


def test_round_in_which_all_drop_out_is_an_empty_step():
    pace, _ = begun([1])
    assert pace.died(11.0, 1, 0) == [Drop([0], [1], "died"), Step(0, (), (), ()), Choose(None)]


def test_round_without_clients_ends_immediately_or_at_its_deadline():
    _, told = begun([])
    assert told == [Step(0, (), (), ()), Choose(None)]
    pace, told = begun([], deadline=4.0)
    assert told == [SetTimer(0, 14.0)]
    assert pace.joined(12.0, [3]) == []
    assert pace.expired(14.0, 0) == [Step(0, (), (), ()), Choose(None)]


def test_joining_client_triggers_selection_while_none_was_available():
    pace = Rounds().bind(3)
    pace.start(0.0)
    assert pace.joined(5.0, [1]) == [Choose(None)]
    pace.chosen(5.0, [1])
    assert pace.joined(6.0, [2]) == []


def test_selection_during_a_round_is_refused():
    pace, _ = begun([1])
    with pytest.raises(ValueError, match=r"round 0 is running: choose a cohort when it is over"):
        pace.chosen(11.0, [2])


def test_cohort_with_repeated_clients_is_refused():
    with pytest.raises(ValueError, match=r"client 4 is at work on task 0"):
        begun([4, 4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": 0}, r"deadline: got 0, needed a finite number > 0"),
        ({"over_selection": 0.5}, r"over_selection: got 0\.5, needed a factor >= 1\. 1\.3 asks 30% more"),
        ({"over_selection": float("nan")}, r"over_selection: got nan, needed a finite number > 0"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        Rounds(**options)
