"""Buffered pace: the protocol under any order of events, and each rule by example."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant
from tests.protocol.pace.ledger import Ledger, N

from turnout.core.checks import ConfigurationError
from turnout.protocol.pace import Ask, Buffered, Choose, Drop, Step


@st.composite
def options(draw):
    """Any options that fit N clients."""
    reselect, waits = draw(st.booleans()), draw(st.sampled_from(["never", "if_current", "always"]))
    concurrency = draw(st.none() | st.integers(1, N))
    most = 2 * N if waits == "never" else N if reselect else concurrency or N
    return Buffered(
        buffer_size=draw(st.integers(1, most)),
        concurrency=concurrency,
        max_staleness=draw(st.none() | st.integers(0, 3)),
        reselect=reselect,
        waits=waits,
        starts_with_all=concurrency in (None, N) and draw(st.booleans()),
    )


class BufferedLedger(Ledger):
    @initialize(options=options())
    def begin(self, options):
        self.options = options
        self.pace = self.fresh()
        self.do(self.pace.start(0.0))

    def fresh(self):
        return self.options.bind(N)

    def check_step(self, step):
        if self.options.starts_with_all and step.version == 0:
            assert set(step.clients) == set(range(N))
        else:
            assert len(step.tasks) == self.options.buffer_size
        staleness = [step.version - version for version in step.versions]
        assert min(staleness) >= 0
        assert self.options.max_staleness is None or max(staleness) <= self.options.max_staleness
        twice = {client for client in step.clients if step.clients.count(client) > 1}
        if self.options.waits == "always":
            assert twice <= self.left_once
        if self.options.waits == "if_current":
            fresh = [c for c, tau in zip(step.clients, staleness, strict=True) if tau == 0 and c not in self.left_once]
            assert len(set(fresh)) == len(fresh)

    @invariant()
    def concurrency_is_never_exceeded(self):
        assert len(self.open) <= (self.options.concurrency or N)
        if self.options.starts_with_all and not self.steps:
            assert len({client for client, _ in self.in_hand.values()}) < N
        else:
            assert len(self.in_hand) < self.options.buffer_size

    @invariant()
    def whoever_waits_is_in_the_buffer(self):
        buffered = {client for client, _ in self.in_hand.values()}
        assert set(self.pace.waiting) <= buffered  # type: ignore[attr-defined]


BufferedLedger.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestProtocol = BufferedLedger.TestCase


def begun(num_clients: int, clients, **options):
    """A pace that has asked `clients`."""
    pace = Buffered(**options).bind(num_clients)
    wanted = pace.start(0.0)
    assert wanted == [Choose(pace.concurrency)]
    assert pace.chosen(0.0, clients) == [Ask(range(len(clients)), clients, 0)]
    return pace


def test_report_that_fills_the_buffer_steps_before_new_tasks():
    pace = begun(3, [0, 1, 2], buffer_size=2)
    assert pace.reported(1.0, 1, 1, 0) == [Choose(1, [1])]
    assert pace.chosen(1.0, [1]) == [Ask(range(3, 4), [1], 0)]
    assert pace.reported(2.0, 0, 0, 0) == [Step(0, (1, 0), (1, 0), (0, 0)), Choose(1, [0])]
    assert pace.chosen(2.0, [0]) == [Ask(range(4, 5), [0], 1)]


def test_staleness_is_the_difference_of_versions():
    pace = begun(2, [0, 1], buffer_size=1)
    for version in range(3):
        step, _ = pace.reported(1.0, 0, [0, 2, 3][version], version)
        assert step == Step(version, ([0, 2, 3][version],), (0,), (version,))
        pace.chosen(1.0, [0])
    assert pace.versions() == {0, 3}
    step, _ = pace.reported(9.0, 1, 1, 0)
    assert step == Step(3, (1,), (1,), (0,))
    assert pace.versions() == {3, 4}


def test_too_stale_reports_are_dropped_and_their_clients_continue():
    pace = begun(2, [0, 1], buffer_size=1, max_staleness=0)
    pace.reported(1.0, 0, 0, 0)
    assert pace.reported(2.0, 1, 1, 0) == [Drop([1], [1], "stale"), Choose(2, [1])]
    pace.chosen(2.0, [1])
    assert isinstance(pace.reported(3.0, 1, 2, 1)[0], Step)


def test_authors_protocol_makes_clients_of_the_current_version_wait():
    pace = begun(3, [0, 1, 2], buffer_size=2, waits="if_current")
    assert pace.reported(1.0, 0, 0, 0) == []
    assert not pace.idle(0)
    step, wanted = pace.reported(2.0, 1, 1, 0)
    assert wanted == Choose(2, [0, 1])
    pace.chosen(2.0, [0, 1])
    assert pace.reported(3.0, 2, 2, 0) == [Choose(1, [2])]  # trained version 0, and it is 1 now: goes on at once
    pace.chosen(3.0, [2])
    step, _ = pace.reported(4.0, 2, 5, 1)
    assert step == Step(1, (2, 5), (2, 2), (0, 1))  # so it is in the buffer twice


def test_waiting_for_all_clients():
    pace = begun(3, [0, 1, 2], buffer_size=2, waits="always")
    pace.reported(1.0, 0, 0, 0)
    pace.reported(1.0, 1, 1, 0)
    pace.chosen(1.0, [0, 1])
    assert pace.reported(3.0, 2, 2, 0) == []


def test_waiting_client_keeps_its_slot():
    pace = begun(4, [0, 1], buffer_size=2, concurrency=2, waits="always")
    assert pace.reported(1.0, 0, 0, 0) == []
    assert pace.num_free == 0
    assert pace.joined(1.5, [3]) == []


def test_first_step_has_a_report_of_every_client():
    pace = begun(3, [0, 1, 2], buffer_size=1, starts_with_all=True)
    assert pace.reported(1.0, 2, 2, 0) == pace.reported(2.0, 0, 0, 0) == []
    pace.grow(4)
    assert pace.joined(2.0, [3]) == [Choose(1, [3])]
    pace.chosen(2.0, [3])
    assert pace.reported(3.0, 3, 3, 0) == []
    step, wanted = pace.reported(4.0, 1, 1, 0)
    assert step == Step(0, (2, 0, 3, 1), (2, 0, 3, 1), (0, 0, 0, 0))
    assert wanted == Choose(4, [2, 0, 3, 1])
    pace.chosen(4.0, [2, 0, 3, 1])
    assert pace.reported(5.0, 3, 6, 1)[0] == Step(1, (6,), (3,), (1,))


def test_first_step_waits_for_departed_clients_without_reports():
    pace = begun(2, [0, 1], buffer_size=1, starts_with_all=True)
    pace.reported(1.0, 0, 0, 0)
    assert pace.left(1.0, [0, 1]) == [Drop([1], [1], "left"), Choose(2)]
    assert pace.joined(2.0, [0, 1]) == [Choose(2, [0, 1])]
    pace.chosen(2.0, [0, 1])
    assert pace.reported(3.0, 0, 2, 0) == []  # again, which is not everyone
    assert isinstance(pace.reported(4.0, 1, 3, 0)[0], Step)


def test_selecting_a_waiting_client_is_refused():
    pace = begun(5, [0, 1], buffer_size=3, concurrency=2, reselect=True, waits="always")
    pace.reported(1.0, 0, 0, 0)
    with pytest.raises(ValueError, match=r"client 0 waits for the next step: choose one that is idle"):
        pace.chosen(1.0, [0])


def test_reselection_gives_a_slot_to_any_client():
    pace = begun(5, [0, 1], buffer_size=3, concurrency=2, reselect=True, waits="always")
    assert pace.reported(1.0, 0, 0, 0) == [Choose(1)]
    pace.chosen(1.0, [4])
    assert pace.reported(2.0, 1, 1, 0) == [Choose(1)]
    pace.chosen(2.0, [3])
    step, wanted = pace.reported(3.0, 4, 2, 0)
    assert step == Step(0, (0, 1, 2), (0, 1, 4), (0, 0, 0))
    assert wanted == Choose(1)


def test_free_slot_is_offered_to_joining_clients():
    pace = begun(4, [0], buffer_size=1)
    assert pace.joined(1.0, [3]) == [Choose(3, [3])]
    assert pace.chosen(1.0, []) == []
    assert pace.expired(2.0, 0) == []


def test_departed_waiting_client_loses_its_slot_and_keeps_its_report():
    pace = begun(2, [0, 1], buffer_size=2, waits="always")
    pace.reported(1.0, 0, 0, 0)
    assert pace.left(2.0, [0]) == [Choose(1)]
    step, wanted = pace.reported(3.0, 1, 1, 0)
    assert step == Step(0, (0, 1), (0, 1), (0, 0))
    assert wanted == Choose(2, [1])


def test_idle_clients_leave_without_effect():
    assert begun(3, [0], buffer_size=2, concurrency=1).left(1.0, [1, 2]) == []


def test_selecting_busy_or_too_many_clients_is_refused():
    pace = begun(3, [0, 1], buffer_size=1)
    with pytest.raises(ValueError, match=r"client 1 is at work on task 1: choose one that is idle"):
        pace.chosen(0.0, [1])
    with pytest.raises(ValueError, match=r"clients: got 2, needed at most 1, the number of free places"):
        pace.chosen(0.0, [1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer_size": 0}, r"buffer_size: got 0, needed a whole number >= 1"),
        ({"concurrency": 0}, r"concurrency: got 0, needed a whole number >= 1\. Write None for everyone"),
        ({"max_staleness": -1}, r"max_staleness: got -1, needed a whole number >= 0\. Write None to use all reports"),
        ({"waits": "sometimes"}, r"unknown value of waits 'sometimes'"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        Buffered(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"concurrency": 3, "starts_with_all": True},
            r"report of each of 10 clients, but with concurrency=3 not all of them may work: write concurrency=None",
        ),
        ({"concurrency": 11}, r"concurrency: got 11, needed at most the number of clients, 10\. Write None"),
        (
            {"buffer_size": 11, "waits": "if_current"},
            r"buffer_size: got 11, but with waits='if_current' only 10 clients",
        ),
        ({"buffer_size": 4, "concurrency": 3, "waits": "always"}, r"write buffer_size=3 or less, or waits='never'"),
        ({"buffer_size": 11, "concurrency": 3, "waits": "always", "reselect": True}, r"only 10 clients can report"),
    ],
)
def test_options_beyond_the_number_of_clients_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Buffered(**options).bind(10)


def test_buffer_far_larger_than_the_population_is_refused():
    message = r"buffer_size: got 100,000,000, for which each of 4 clients at work would report .* at most 4000"
    with pytest.raises(ConfigurationError, match=message):
        Buffered(100_000_000).bind(4)
    Buffered(4_000).bind(4)
    with pytest.raises(ConfigurationError, match="each of 2 clients at work"):
        Buffered(4_000, concurrency=2).bind(4)
