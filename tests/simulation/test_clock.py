"""The heap of events."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.simulation.clock import Clock

events = st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 5).map(float))


def emptied(clock: Clock) -> list[tuple[float, int, int]]:
    found = []
    while (event := clock.pop()) is not None:
        assert clock.now == event[0]
        found.append(event)
    return found


@settings(deadline=None)
@given(order=st.permutations(list(range(20))), times=st.lists(st.integers(0, 3), min_size=20, max_size=20))
def test_simultaneous_events_are_ordered_by_kind_and_number(order, times):
    clock = Clock()
    for i in order:
        clock.set(i % 3, i, float(times[i]))
    assert emptied(clock) == sorted((float(times[i]), i % 3, i) for i in range(20))


def test_peek_returns_upcoming_events():
    clock = Clock()
    for number in range(100, 0, -1):
        clock.set(number % 3, number, float(number))
    assert clock.soon(1) == [(1, 1)]
    assert {number for _, number in clock.soon(100)} == set(range(1, 101))
    clock.cancel(1, 1)
    clock.set(2, 2, 1000.0)
    some = clock.soon(7)
    assert (1, 1) not in some
    assert all(number in range(3, 101) for _, number in some)
    assert 4 <= len(some) <= 7


@settings(deadline=None)
@given(
    script=st.lists(
        st.one_of(
            events.map(lambda event: ("set", event)),
            st.tuples(st.integers(0, 4), st.integers(0, 6)).map(lambda event: ("cancel", event)),
            st.floats(0, 8).map(lambda until: ("pop", until)),
            st.just(("save", None)),
        ),
        max_size=60,
    )
)
def test_any_sequence_of_operations_equals_a_sorted_list(script):
    clock, due = Clock(), {}
    for what, value in script:
        if what == "set":
            kind, number, delay = value
            due[kind, number] = clock.now + delay
            clock.set(kind, number, clock.now + delay)
        elif what == "cancel":
            due.pop(value, None)
            clock.cancel(*value)
        elif what == "pop":
            first = min(((time, *event) for event, time in due.items()), default=None)
            first = first if first is not None and first[0] <= value else None
            assert clock.pop(value) == first
            if first is not None:
                del due[first[1:]]
                assert clock.now == first[0]
        else:
            other = Clock()
            other.restore(clock.state())
            assert other.now == clock.now
            clock = other
        assert len(clock) == len(due)
    assert emptied(clock) == sorted((time, *event) for event, time in due.items())


def test_rescheduled_events_take_constant_memory():
    clock = Clock()
    for i in range(10_000):
        clock.set(0, 0, float(i + 1))
    assert len(clock._heap) < 200
    assert emptied(clock) == [(10_000.0, 0, 0)]


def test_infinite_time_never_occurs():
    clock = Clock()
    clock.set(0, 1, 5.0)
    clock.set(0, 1, math.inf)
    assert clock.pop() is None


def test_event_in_the_past_is_refused():
    clock = Clock()
    clock.set(0, 0, 3.0)
    clock.pop()
    for time in (2.0, math.nan):
        with pytest.raises(ValueError, match=r"time: got .*, needed a time from now \(3\.0\) on"):
            clock.set(0, 1, time)
