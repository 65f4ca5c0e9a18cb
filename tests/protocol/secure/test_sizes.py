"""Sizes of graphs: failure probabilities, enumerated for few clients, are within the bound."""

from fractions import Fraction
from itertools import combinations
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import ConfigurationError
from turnout.pieces.aggregation import SecureSum
from turnout.protocol.secure import sizes
from turnout.protocol.secure.attendance import threshold_of
from turnout.protocol.secure.graph import neighbors

N = 13
GRAPHS = {degree: neighbors(range(N), degree, 0) for degree in range(2, N)}


def apart(graph, there):
    """Return whether the remaining clients are disconnected."""
    seen, new = set(), {min(there)}
    while new:
        seen |= new
        new = {other for client in new for other in graph[client] if other in there} - seen
    return seen != there


def failures(degree, threshold, bad, gone):
    """Return how often secrets are revealed, honest clients are disconnected, or there is no sum, over all subsets.

    The graph is dealt at random and those who are marked are not, which is the same as the other way round.
    """
    graph, counts, total = GRAPHS[degree], [0, 0, 0], 0
    for corrupt in map(set, combinations(range(N), bad)):
        honest = set(range(N)) - corrupt
        for left in map(set, combinations(range(N), gone)):
            total += 1
            exposed = 2 * threshold - degree  # who give both of their shares to a server that tells half of them lies
            counts[0] += any(len(corrupt.intersection(graph[client])) >= exposed for client in honest)
            counts[1] += bool(honest - left) and apart(graph, honest - left)
            counts[2] += any(len(set(graph[client]) - left) < threshold for client in range(N))
    return [number / total for number in counts]


@pytest.mark.parametrize(("bad", "gone"), [(2, 1), (1, 3), (3, 0), (0, 3)])
def test_failure_probability_is_within_the_bound(bad, gone):
    found = sizes(N, corrupt=(bad + 0.5) / N, dropout=(gone - 0.5 * (gone > 0)) / N, security=2, correctness=1)
    assert found.degree < N - 1, "a graph of neighbors was found"
    exposed, parted, lost = failures(*found, bad, gone)
    assert exposed <= 1 / 4
    assert parted <= 1 / 4
    assert lost <= 1 / 2
    assert 2 * found.threshold > found.degree
    if 2 * (found.threshold - 1) > found.degree:
        assert failures(found.degree, found.threshold - 1, bad, gone)[0] > 0, "a smaller threshold gives something away"


def slow(n, bad, gone, security, correctness):
    """The bounds as they are written, in fractions."""

    def chance(holds, marked, k):
        found = [
            Fraction(comb(marked, i) * comb(n - 1 - marked, k - i), comb(n - 1, k)) for i in range(k + 1) if holds(i)
        ]
        return sum(found, Fraction(0))

    for k in range(2, n - 1, 2):
        in_a_row = Fraction(comb(n - k // 2, bad + gone - k // 2), comb(n, bad + gone)) if k // 2 <= bad + gone else 0
        for t in range(k // 2 + 1, k + 1):
            exposed, lost = (
                chance(lambda i, t=t, k=k: i >= max(1, 2 * t - k), bad, k),
                chance(lambda i, t=t: i < t, n - 1 - gone, k),
            )
            if max(n * exposed, n * in_a_row) * 2**security <= 1 and n * lost * 2**correctness <= 1:
                return k, t
    return n - 1, (n + bad + 1) // 2


@settings(max_examples=150, deadline=None)
@given(st.integers(6, 40), st.integers(0, 8), st.integers(0, 12), st.integers(1, 6), st.integers(1, 60))
def test_sizes_are_minimal_under_the_bounds(n, bad, gone, security, correctness):
    if (n + bad + 1) // 2 > n - 1 - gone:
        return
    found = sizes(
        n, corrupt=(bad + 0.5) / n, dropout=(gone - 0.5 * (gone > 0)) / n, security=security, correctness=correctness
    )
    assert found == slow(n, bad, gone, security, correctness)


def test_more_corrupt_or_dropped_clients_need_more_neighbors():
    degrees = [sizes(500, corrupt=share, dropout=share).degree for share in (0.0, 0.05, 0.1, 0.2, 0.3)]
    assert degrees == sorted(degrees)
    assert degrees[0] < 10 < degrees[-1]
    grown = [sizes(n, corrupt=0.1, dropout=0.2).degree for n in (200, 2000, 20_000)]
    assert grown[2] < 2 * grown[1], "logarithmic in the number of clients"


def test_few_clients_form_a_complete_graph():
    assert sizes(8, corrupt=0.25, dropout=0.25) == (7, 5)
    with pytest.raises(
        ConfigurationError, match=r"of 8 clients, 4 may collude .* and 4 may leave, and the 6 who must help"
    ):
        sizes(8, corrupt=0.5, dropout=0.5)
    with pytest.raises(ConfigurationError, match=r"corrupt: got 1\.0, needed a number >= 0 and < 1"):
        sizes(8, corrupt=1.0, dropout=0.5)
    with pytest.raises(ConfigurationError, match="num_clients: got 2"):
        sizes(2, corrupt=0.0, dropout=0.0)


@pytest.mark.parametrize("num_clients", [20, 100, 1000])
def test_secure_sum_accepts_the_sizes(num_clients):
    degree, threshold = sizes(num_clients, corrupt=0.05, dropout=0.15)
    piece = SecureSum(degree=degree, threshold=threshold / degree)
    assert threshold_of(piece.threshold, piece.masking.num_neighbors(num_clients)) == threshold
