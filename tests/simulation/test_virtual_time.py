"""The driver in virtual time: checkpoints, memory, and user-defined selections."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.population import Cyclic, Dropout, Everyone, Group, Markov, Speed, Trace
from turnout.population.delay import Constant, Exponential, LogNormal, Uniform
from turnout.protocol.pace import Buffered, Rounds, SetTimer, Step, Training
from turnout.protocol.pace.rounds import BoundRounds
from turnout.simulation.virtual_time import VirtualTime, at_random
from turnout.simulation.work_times import WorkTimes

SPEED = Speed(LogNormal(2, 0.5), upload=Exponential(0.5), groups=(Group(2), Group(1, Uniform(8, 12))))

CASES = {
    "everyone": (Buffered(4), Everyone(), None, 12),
    "authors": (Buffered(4, waits="if_current", max_staleness=2), Everyone(), None, 12),
    "places": (Buffered(4, 6, waits="if_current"), Everyone(), None, 12),
    "reselected": (Buffered(3, 20, reselect=True, waits="always"), Everyone(), None, 40),
    "searched": (Buffered(3, 20, reselect=True), Markov(mean=0.3), 4.0, 2000),
    "come and go": (Buffered(3), Cyclic(mean=0.4, period=8), 3.0, 30),
    "rounds": (Rounds(9.0, 1.4), Markov(mean=0.4), None, 30),
    "rounds by the clock": (Rounds(None, 1.4), Markov(mean=0.2), 3.0, 6),
}


def driver(pace, work, availability, seconds_per_round=None, cohort=None, seed=0) -> VirtualTime:
    """A pace in virtual time that asks clients at random."""
    scheduler, choice = at_random(pace, availability, seconds_per_round, cohort, seed)
    return VirtualTime(scheduler, choice, work, seconds_per_round)


def state(virtual: VirtualTime) -> dict:
    """All that the two of them carry."""
    return virtual.state() | virtual.scheduler.state()


def restore(virtual: VirtualTime, groups: dict) -> None:
    virtual.scheduler.restore(groups)
    virtual.restore(groups)


def made(name: str, drops_out: bool = True) -> VirtualTime:
    pace, availability, seconds, num_clients = CASES[name]
    work = WorkTimes(SPEED.bind(num_clients, 5), Dropout(0.1, 0.01).bind(5) if drops_out else None)
    bound = availability.bind(num_clients, None, 5)
    return driver(pace, work, bound, seconds_per_round=seconds, cohort=10, seed=5)


def taken(virtual: VirtualTime, steps: int) -> list[tuple]:
    """The next steps and their times, in plain values."""
    found = []
    for _ in range(steps):
        step = virtual.advance()
        assert isinstance(step, Step)
        found.append((virtual.clock.now, step.version, list(step.tasks), list(step.clients), list(step.versions)))
    return found


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5, deadline=None)
@given(before=st.integers(0, 60))
def test_restored_driver_equals_an_uninterrupted_one(name, before):
    whole = made(name)
    taken(whole, before)
    other = made(name)
    taken(other, 7)  # it has been somewhere else
    restore(other, {group: {key: value.copy() for key, value in part.items()} for group, part in state(whole).items()})
    own, virtual = state(other)["virtual"], state(whole)["virtual"]
    assert own["lonely"].tolist() == virtual["lonely"].tolist()
    assert taken(other, 40) == taken(whole, 40)


@pytest.mark.parametrize("name", CASES)
def test_driver_can_stop_at_any_time(name):
    whole, halting = made(name), made(name)
    expected = taken(whole, 30)
    found, until = [], 0.0
    while len(found) < 30:
        until += 0.37
        while len(found) < 30 and isinstance(step := halting.advance(until), Step):
            assert halting.clock.now <= until
            found.append((halting.clock.now, step.version, list(step.tasks), list(step.clients), list(step.versions)))
    assert found == expected
    for one, other in zip(whole.log.take()[0].values(), halting.log.take()[0].values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", CASES)
def test_state_consists_of_numeric_arrays(name):
    virtual = made(name)
    taken(virtual, 5)
    for part in state(virtual).values():
        for value in part.values():
            assert value.dtype in (np.int64, np.float64)


@pytest.mark.parametrize("name", CASES)
def test_required_versions_are_stored(name):
    virtual, kept = made(name), {0}
    for _ in range(80):
        step = virtual.advance()
        assert isinstance(step, Step)
        assert set(step.versions) <= kept
        kept = (kept | {step.version + 1}) & virtual.pace.versions()
        assert step.version + 1 in kept


def test_memory_holds_versions_in_use_not_one_per_client():
    work = WorkTimes(Speed(Constant(1), spread=0.3).bind(2000))
    virtual = driver(Buffered(200), work, Everyone().bind(2000))
    taken(virtual, 100)
    assert len(virtual.pace.open) == 1999  # whoever filled the buffer is asked when it goes on
    assert len(virtual.pace.versions()) < 40


@pytest.mark.parametrize(("num_clients", "concurrency"), [(20_000, 500), (500, None)])
def test_durations_are_computed_in_batches(num_clients, concurrency, monkeypatch):
    speed, calls, asked = Speed(Uniform(0.5, 1.5)).bind(num_clients), [], []
    seconds, ask = speed.seconds, WorkTimes.next
    monkeypatch.setattr(type(speed), "seconds", lambda _, *given: calls.append(given) or seconds(*given))
    monkeypatch.setattr(WorkTimes, "next", lambda self, *given: asked.append(given) or ask(self, *given))
    pace = Buffered(50, concurrency, waits="never", reselect=concurrency is not None)
    taken(driver(pace, WorkTimes(speed), Everyone().bind(num_clients)), 40)
    assert len(asked) > 1500
    assert len(calls) < len(asked) / 20
    assert sum(len(clients) for clients, *_ in calls) < 20 * sum(len(clients) for clients, *_ in asked)


def test_user_defined_selection_is_used():
    asked = []

    def evens(there, version, factor):
        asked.append((version, factor))
        clients = np.arange(0, 10, 2)
        return clients[there(clients)]

    bound = Markov(mean=0.5).bind(10)
    virtual = driver(Rounds(over_selection=2.0), WorkTimes(Speed().bind(10)), bound, cohort=evens)
    for version, (_, _, _, clients, _) in enumerate(taken(virtual, 20)):
        there = [c for c in range(0, 10, 2) if bound.available(np.array([c]), version)[0]]
        assert set(clients) <= set(there)
        assert len(clients) == (max(1, len(there) // 2) if there else 0)
    assert asked == [(version, 2.0) for version in range(20)]


def test_selection_sees_only_idle_clients():
    virtual = driver(Buffered(1, 2), WorkTimes(Speed().bind(4)), Everyone().bind(4))
    taken(virtual, 3)
    at_work = set(virtual.pace.busy())
    there = virtual.choice.selectable(np.arange(4))
    assert {c for c in range(4) if not there[c]} == at_work


def test_seconds_per_round_must_be_positive():
    with pytest.raises(ValueError, match=r"seconds_per_round: got 0, needed a finite number > 0"):
        driver(Buffered(1), WorkTimes(Speed().bind(4)), Everyone().bind(4), seconds_per_round=0)


class Told(BoundRounds):
    """Record events in order, without acting on them."""

    def __init__(self, clients):
        super().__init__(Rounds(), Training(), None)
        self.clients, self.told = clients, []

    def start(self, time):
        return [self.open.ask(self.clients, 0), SetTimer(3, time + 1), SetTimer(2, time + 1)]

    def reported(self, time, client, task, version):
        return self.note("report", time, task, client, version)

    def died(self, time, client, task):
        return self.note("death", time, task, client)

    def left(self, time, clients):
        return self.note("left", time, *clients)

    def joined(self, time, clients=()):
        return self.note("joined", time, *clients)

    def expired(self, time, timer):
        return self.note("timer", time, timer)

    def note(self, *what):
        self.told.append(what)
        return []


@settings(deadline=None)
@given(
    clients=st.permutations(range(6)),
    die=st.lists(st.booleans(), min_size=6, max_size=6),
    order=st.permutations(range(10)),
)
def test_simultaneous_events_have_a_fixed_order(clients, die, order):
    """Reports, then drop-outs by task number, departures, arrivals, and timers by number."""

    class Work(WorkTimes):
        def next(self, clients, version, candidates=tuple, phase="train"):
            del version, candidates, phase
            return [-1.0 - 1.0 if die[client] else 1.0 for client in clients]

    pace, told = Rounds(), Told(list(clients))
    object.__setattr__(pace, "bind", lambda *_: told)
    trace = Trace(((0, 0, 9), (1, 0, 1), (2, 0, 9), (3, 0, 9), (4, 0, 9), (5, 0, 1)), repeat=False)
    virtual = driver(pace, Work(Speed().bind(6)), trace.bind(6), seconds_per_round=1.0)
    assert virtual.advance(0.5) is None
    state = virtual.clock.state()
    virtual.clock.restore(state | {name: state[name][list(order)] for name in ("events", "times")})
    assert virtual.advance(1.0) is None
    tasks = [(task, client) for task, client in enumerate(clients)]
    assert told.told == [
        *(("report", 1.0, task, client, 0) for task, client in tasks if not die[client]),
        *(("death", 1.0, task, client) for task, client in tasks if die[client]),
        ("left", 1.0, *(client for client in clients if client in (1, 5))),
        ("joined", 1.0),
        ("timer", 1.0, 2),
        ("timer", 1.0, 3),
    ]
