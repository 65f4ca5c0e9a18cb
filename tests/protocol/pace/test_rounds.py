"""Synchronous pace: the protocol under any order of events, and each rule by example."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from tests.protocol.pace.ledger import Ledger, N

import turnout as to
from turnout.base import enlarged_size
from turnout.protocol.pace import Ask, Choose, Drop, Ignore, Rounds, SetTimer, Step
from turnout.simulation.schedule import schedule


class RoundsLedger(Ledger):
    @initialize(
        deadline=st.none() | st.floats(0.5, 9.0), factor=st.sampled_from([1.0, 1.3, 2.0, 5.0]),
        quorum=st.none() | st.integers(1, 4), grace=st.floats(0.0, 3.0),
    )  # fmt: skip
    def begin(self, deadline, factor, quorum, grace):
        self.options = Rounds(deadline, factor, quorum, grace)
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


def test_grace_window_opens_with_the_quorum_and_lasts_in_proportion_to_the_wait_for_it():
    pace, told = begun([1, 2, 3, 4], quorum=2, grace=0.5)
    assert told == [Ask(range(4), [1, 2, 3, 4], 0)]
    assert pace.reported(12.0, 1, 0, 0) == []
    assert pace.reported(14.0, 2, 1, 0) == [SetTimer(0, 16.0)]  # 14 + 0.5 (14 - 10)
    assert pace.reported(16.0, 3, 2, 0) == []  # within the window, and no second one
    step = Step(0, (0, 1, 2), (1, 2, 3), (0, 0, 0))
    assert pace.expired(16.0, 0) == [Drop([3], [4], "late"), step, Choose(None)]
    pace.chosen(20.0, [5, 6, 7])
    pace.reported(20.5, 5, 4, 1)
    assert pace.reported(21.0, 6, 5, 1) == [SetTimer(1, 21.5)]  # faster clients, and a shorter window
    assert pace.expired(30.0, 0) == []  # the window of the round before


def test_window_is_the_same_after_a_restart():
    pace, _ = begun([1, 2, 3], quorum=2, grace=0.3)
    pace.reported(10.1, 1, 0, 0)
    again = Rounds(quorum=2, grace=0.3).bind(99)
    again.restore(pace.state())
    assert again.reported(10.7, 2, 1, 0) == pace.reported(10.7, 2, 1, 0)


def test_round_with_a_quorum_ends_at_its_deadline_or_with_its_last_report():
    pace, _ = begun([1, 2, 3], quorum=2, deadline=4.0, grace=9.0)
    pace.reported(11.0, 1, 0, 0)
    assert pace.reported(13.0, 2, 1, 0) == [SetTimer(0, 40.0)]
    assert pace.expired(14.0, 0)[1] == Step(0, (0, 1), (1, 2), (0, 0))
    pace, _ = begun([1, 2], quorum=2)
    pace.reported(11.0, 1, 0, 0)
    assert pace.reported(12.0, 2, 1, 0) == [Step(0, (0, 1), (1, 2), (0, 0)), Choose(None)]


@pytest.mark.parametrize("quorum", [1, 3])
def test_simulated_rounds_with_a_quorum_have_at_least_its_reports_and_none_without_grace_has_more(quorum):
    clients = to.Population(speed=to.speed.Speed(compute=to.delay.Uniform(1, 9)))
    taken = {
        grace: schedule(Rounds(quorum=quorum, grace=grace), clients, num_clients=6, steps=20).contributions()
        for grace in (0.0, 0.5, 1e9)
    }
    sums = [table["contributions"].sum() for table in taken.values()]
    assert sums[0] == 20 * quorum
    assert sums[0] < sums[1] < sums[2] == 20 * 6


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
        ({"quorum": 0}, r"quorum: got 0, needed a whole number >= 1. Write None to wait for all clients"),
        ({"grace": -1.0}, r"grace: got -1\.0, needed a finite number >= 0"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        Rounds(**options)
