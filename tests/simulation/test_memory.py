import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.simulation.memory import ClientMemory

FIELDS = {"steps": ((), torch.int64), "control": ((3,), torch.float32)}


def rows(clients, value):
    n = len(clients)
    return {"steps": torch.full((n,), value), "control": torch.full((n, 3), float(value))}


def test_starts_at_zero_and_keeps_what_is_stored():
    memory = ClientMemory(10, FIELDS)
    clients = np.array([7, 2])
    assert memory.gather(clients)["steps"].tolist() == [0, 0]
    memory.scatter(clients, {"steps": torch.tensor([5, 6]), "control": torch.ones(2, 3)})
    found = memory.gather(np.array([2, 3, 7]))
    assert found["steps"].tolist() == [6, 0, 5]
    assert found["control"].tolist() == [[1.0] * 3, [0.0] * 3, [1.0] * 3]


def test_what_is_gathered_is_a_copy():
    memory = ClientMemory(4, FIELDS)
    memory.gather(np.array([1]))["steps"] += 9
    assert memory.gather(np.array([1]))["steps"].tolist() == [0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sets(st.integers(0, 29), min_size=1), min_size=1, max_size=12))
def test_is_a_dictionary_by_client(cohorts):
    memory, expected = ClientMemory(30, FIELDS), dict.fromkeys(range(30), 0)
    for value, cohort in enumerate(cohorts, start=1):
        clients = np.array(sorted(cohort))
        assert memory.gather(clients)["steps"].tolist() == [expected[k] for k in sorted(cohort)]
        memory.scatter(clients, rows(clients, value))
        expected |= dict.fromkeys(cohort, value)
    restored = ClientMemory(30, FIELDS)
    restored.restore(memory.state())
    for one in (memory, restored):
        assert one.gather(np.arange(30))["steps"].tolist() == [expected[k] for k in range(30)]


def test_only_who_took_part_costs_a_row():
    memory = ClientMemory(1_000_000, FIELDS)
    for low in range(0, 50, 10):
        clients = np.arange(low, low + 10) * 20_000
        memory.scatter(clients, rows(clients, 1))
    state = memory.state()
    assert state["clients"].tolist() == (np.arange(50) * 20_000).tolist()
    assert state["table.control"].shape == (50, 3)


def test_who_is_only_looked_at_costs_no_row():
    """Clients who are asked for measurements alone keep nothing."""
    memory = ClientMemory(100, FIELDS)
    memory.scatter(np.array([3]), rows([3], 7))
    assert memory.gather(np.arange(100))["steps"].tolist() == [0, 0, 0, 7] + [0] * 96
    assert memory.state()["clients"].tolist() == [3]


def test_nothing_to_remember_costs_nothing():
    memory = ClientMemory(1_000_000, {})
    assert memory.gather(np.array([5])) == {}
    memory.scatter(np.array([5]), {})
    assert memory.state() == {}
    memory.restore({})
