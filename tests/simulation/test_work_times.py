"""Durations of tasks."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.population import Dropout, Group, Speed
from turnout.population.delay import Constant, LogNormal, Uniform
from turnout.simulation.work_times import Effort, NumSteps, WorkTimes

SPEED = Speed(LogNormal(2, 0.5), upload=Constant(1), groups=(Group(1), Group(1, Uniform(8, 12))), spread=0.3).bind(6, 2)


def by_version(clients: np.ndarray, version: int) -> np.ndarray:
    return clients + version % 3 + 1


STEPS: list[NumSteps] = [3, np.array([1, 2, 3, 4, 5, 6]), by_version]


def expected(client: int, number: int, steps: int, dropout) -> float:
    one, numbers = np.array([client]), np.array([number])
    seconds = SPEED.seconds(one, numbers, steps).total
    death = np.inf if dropout is None else dropout.deaths(one, numbers, seconds)[0]
    return -1 - death if death < seconds[0] else seconds[0]


@given(
    asked=st.lists(st.lists(st.integers(0, 5), unique=True, min_size=1), max_size=40),
    drops_out=st.booleans(),
    saved=st.integers(0, 39),
    likely=st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1),
    steps=st.sampled_from(STEPS),
)
def test_tasks_of_a_client_are_sequential_for_any_query(asked, drops_out, saved, likely, steps: NumSteps):
    dropout = Dropout(0.3, 0.05).bind(2) if drops_out else None
    work, counts = WorkTimes(SPEED, dropout, {"train": Effort(steps)}), dict.fromkeys(range(6), 0)
    for version, clients in enumerate(asked):
        if version == saved:
            state, work = work.state(), WorkTimes(SPEED, dropout, {"train": Effort(steps)})
            work.restore(state)
        soon = partial(list, likely[version % len(likely)])
        for client, ends in zip(clients, work.next(clients, version, soon), strict=True):
            own = steps(np.arange(6), version) if callable(steps) else np.broadcast_to(steps, 6)
            assert ends == expected(client, counts[client], int(own[client]), dropout)
            counts[client] += 1
    kept = dict(work.state()["counts"].tolist())
    assert {client: kept.get(client, 0) for client in range(6)} == counts


def test_client_can_continue_indefinitely():
    work = WorkTimes(SPEED)
    ends = [work.next([4], 0)[0] for _ in range(1000)]
    np.testing.assert_array_equal(ends, SPEED.seconds(np.full(1000, 4), np.arange(1000)).total)


def test_batch_size_is_bounded(monkeypatch):
    monkeypatch.setattr("turnout.simulation.work_times._AT_ONCE", 20)
    speed, sizes = Speed(Uniform(1, 2)).bind(12), []
    seconds = speed.seconds
    monkeypatch.setattr(type(speed), "seconds", lambda _, *given: sizes.append(len(given[0])) or seconds(*given))
    work = WorkTimes(speed)
    for version in range(9):
        work.next(range(12), version)
        work.next([3], version, lambda: range(4))
    assert max(sizes) == 20
    assert sizes[0] == 12


@pytest.mark.parametrize("steps", [0, 1.5, np.array([1, 1, 0, 1, 1, 1])])
def test_tasks_without_a_step_are_refused(steps):
    with pytest.raises(ValueError, match=r"num_steps: got .*, needed whole numbers >= 1: have the selection skip"):
        WorkTimes(SPEED, efforts={"train": Effort(steps)})


def test_tasks_without_a_step_are_refused_at_creation():
    with pytest.raises(ValueError, match=r"num_steps: got 0, needed whole numbers >= 1"):
        WorkTimes(SPEED, efforts={"train": Effort(lambda clients, version: clients * version)}).next([1, 2], 0)


def test_steps_of_other_clients_are_refused():
    with pytest.raises(
        ValueError, match=r"num_steps: got 'shape \(5,\)', needed one number, or one for each of 6 clients"
    ):
        WorkTimes(SPEED, efforts={"train": Effort(np.ones(5, dtype=int))})
