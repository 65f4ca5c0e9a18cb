"""Random orders of clients, generated lazily."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.random import stream
from turnout.pieces.selection import draws
from turnout.pieces.selection.draws import RandomOrder


def whole(order: RandomOrder, num_clients: int, sizes: Sequence[int] = (10**9,)) -> np.ndarray:
    """All clients in order, taken in pieces of the given sizes, again and again."""
    taken = np.empty(0, dtype=np.int64)
    for size in itertools.cycle(sizes):
        if len(taken) == num_clients:
            break
        piece = order.take(size)
        assert len(piece) <= size
        taken = np.concatenate([taken, piece])
    return taken


@settings(max_examples=40, deadline=None)
@given(
    num_clients=st.integers(1, 50) | st.integers(1000, 3000),
    key=st.integers(-(2**63), 2**63 - 1),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=5),
)
def test_each_client_occurs_once_for_any_chunking(num_clients, key, sizes):
    order = whole(RandomOrder(key, num_clients), num_clients)
    np.testing.assert_array_equal(np.sort(order), np.arange(num_clients))
    np.testing.assert_array_equal(whole(RandomOrder(key, num_clients), num_clients, sizes), order)


@pytest.mark.parametrize("small", [0, 1024], ids=["drawn and shuffled", "shuffled"])
@pytest.mark.parametrize(("num_clients", "front"), [(4, 4), (5, 4), (9, 3), (16, 2)])
def test_prefixes_are_uniform(monkeypatch, small, num_clients, front):
    monkeypatch.setattr(draws, "_SMALL", small)
    cells = {order: i for i, order in enumerate(itertools.permutations(range(num_clients), front))}
    num_trials = 3000
    seen = np.zeros(len(cells))
    for trial in range(num_trials):
        order = whole(RandomOrder(stream("test", trial), num_clients), num_clients)
        seen[cells[tuple(order[:front].tolist())]] += 1
    expected = num_trials / len(cells)
    chi_square, freedom = ((seen - expected) ** 2 / expected).sum(), len(cells) - 1
    assert abs(chi_square - freedom) < 4.5 * np.sqrt(2 * freedom)


def test_cost_is_that_of_the_prefix(monkeypatch):
    drawn = []
    fold = draws.fold

    def counted(key, numbers):
        drawn.append(len(numbers))
        return fold(key, numbers)

    monkeypatch.setattr(draws, "fold", counted)
    for num_clients in (10**4, 10**7):
        RandomOrder(1, num_clients).take(500)
    assert drawn == [500, 500]
