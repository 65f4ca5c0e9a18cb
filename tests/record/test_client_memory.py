"""Client memory."""

import os
import tempfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import CheckpointError
from turnout.record.client_memory import ClientMemory

FIRST = {"steps": torch.tensor(0), "control": torch.zeros(3)}


def rows(clients, value):
    n = len(clients)
    return {"steps": torch.full((n,), value), "control": torch.full((n, 3), float(value))}


@pytest.mark.parametrize("budget", [1 << 30, 0])
def test_starts_at_zero_and_stores_rows(budget):
    memory = ClientMemory(10, FIRST, budget)
    clients = np.array([7, 2])
    assert memory.gather(clients)["steps"].tolist() == [0, 0]
    memory.scatter(clients, {"steps": torch.tensor([5, 6]), "control": torch.ones(2, 3)})
    found = memory.gather(np.array([2, 3, 7]))
    assert found["steps"].tolist() == [6, 0, 5]
    assert found["control"].tolist() == [[1.0] * 3, [0.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_numbers_that_are_not_finite_are_not_restored(value):
    """The attack: a checkpoint of somebody else, in which one client's memory poisons its training and the sums of it."""
    memory = ClientMemory(10, FIRST)
    memory.scatter(np.array([7, 2]), rows([7, 2], 1))
    state = memory.state()
    memory.restore(state)
    state["table.control"][1, 2] = value
    with pytest.raises(ValueError, match=r"table.control: got NaN or infinity, needed finite numbers"):
        memory.restore(state)
    infinite = ClientMemory(10, {"distance": torch.tensor(torch.inf)})  # as before the first participation
    infinite.restore({"clients": torch.tensor([3]), "table.distance": torch.tensor([torch.inf])})


def test_gathered_rows_are_copies():
    memory = ClientMemory(4, FIRST)
    memory.gather(np.array([1]))["steps"] += 9
    assert memory.gather(np.array([1]))["steps"].tolist() == [0]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 29), min_size=1), min_size=1, max_size=12), st.sampled_from([0, 40, 200, 1 << 30])
)
def test_behaves_like_a_dictionary_by_client(cohorts, budget):
    """In memory, in a file, and when it moves from one to the other."""
    memory, expected = ClientMemory(30, FIRST, budget), dict.fromkeys(range(30), 0)
    for value, cohort in enumerate(cohorts, start=1):
        clients = np.array(sorted(cohort))
        assert memory.gather(clients)["steps"].tolist() == [expected[k] for k in sorted(cohort)]
        memory.scatter(clients, rows(clients, value))
        expected |= dict.fromkeys(cohort, value)
    restored = ClientMemory(30, FIRST, budget)
    restored.restore(memory.state())
    for one in (memory, restored):
        assert one.gather(np.arange(30))["steps"].tolist() == [expected[k] for k in range(30)]


def test_only_participants_take_a_row():
    memory = ClientMemory(1_000_000, FIRST)
    for low in range(0, 50, 10):
        clients = np.arange(low, low + 10) * 20_000
        memory.scatter(clients, rows(clients, 1))
    state = memory.state()
    assert state["clients"].tolist() == (np.arange(50) * 20_000).tolist()
    assert state["table.control"].shape == (50, 3)


def test_measured_clients_take_no_row():
    """Clients who are asked for measurements alone keep nothing."""
    memory = ClientMemory(100, FIRST)
    memory.scatter(np.array([3]), rows([3], 7))
    assert memory.gather(np.arange(100))["steps"].tolist() == [0, 0, 0, 7] + [0] * 96
    assert memory.state()["clients"].tolist() == [3]


def test_rows_start_with_their_initial_values():
    memory = ClientMemory(4, {"own": torch.tensor([1.0, 2.0]), "nothing": torch.zeros(0)})
    memory.scatter(np.array([2]), {"own": torch.tensor([[7.0, 8.0]]), "nothing": torch.zeros(1, 0)})
    assert memory.gather(np.arange(4))["own"].tolist() == [[1.0, 2.0], [1.0, 2.0], [7.0, 8.0], [1.0, 2.0]]
    memory.gather(np.array([0]))["own"] += 9
    assert memory.gather(np.array([0]))["own"].tolist() == [[1.0, 2.0]]


def test_rows_beyond_the_budget_are_in_a_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    memory = ClientMemory(1_000_000, {"own": torch.ones(1000), "nothing": torch.zeros(0)}, budget=1_000_000)
    clients = np.arange(0, 1_000_000, 1_000)
    for low in range(0, 1000, 100):
        own = torch.arange(low, low + 100.0)[:, None].expand(-1, 1000)
        memory.scatter(clients[low : low + 100], {"own": own, "nothing": torch.zeros(100, 0)})
    assert memory._files.keys() == {"own"}
    held = os.fstat(memory._files["own"])
    assert held.st_size == 1_000_000 * 4_000
    assert held.st_blocks * 512 <= 2 * 1000 * 4_000 + 100_000  # as many as are in use, doubled
    assert not list(tmp_path.iterdir())
    assert memory.gather(clients)["own"][:, -1].tolist() == list(range(1000))
    assert memory.gather(np.array([1]))["own"][0, 0] == 1.0


def test_full_disk_is_reported(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    memory = ClientMemory(10, FIRST, budget=0)
    with pytest.raises(CheckpointError, match=r"what clients remember .* No space left on device. Set TMPDIR"):
        memory.scatter(np.array([1]), rows([1], 1))


def test_algorithms_without_memory_take_none():
    memory = ClientMemory(1_000_000, {})
    assert memory.gather(np.array([5])) == {}
    memory.scatter(np.array([5]), {})
    assert memory.state() == {}
    memory.restore({})
