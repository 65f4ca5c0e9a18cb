"""Shares, the graph of neighbors, and fixed-point numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout import ConfigurationError
from turnout.protocol.secure import FixedPoint
from turnout.protocol.secure.graph import neighbors
from turnout.protocol.secure.masks import reduce
from turnout.protocol.secure.shamir import PRIME, reconstruct, share


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 6), st.integers(0, 4), st.randoms())
def test_any_t_shares_reconstruct_the_secret(secret, threshold, more, random):
    points = random.sample(range(1, 1000), threshold + more)
    shares = share(secret, threshold, points)
    chosen = random.sample(points, threshold)
    assert reconstruct({point: shares[point] for point in chosen}) == secret


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_fewer_shares_are_consistent_with_every_secret(secret, other):
    """For any other secret, a polynomial of the same degree passes through the same t - 1 shares."""
    shares = share(secret, 3, [1, 2, 3])
    f1, f2, zero = (int.from_bytes(b, "big") for b in (shares[1], shares[2], other))
    third = (zero - 3 * f1 + 3 * f2) % PRIME  # f(3) of the parabola through f(0), f(1), f(2)
    assert reconstruct({1: shares[1], 2: shares[2], 3: third.to_bytes(33, "big")}) == other


def test_field_is_prime():
    assert all(pow(a, PRIME - 1, PRIME) == 1 for a in (2, 3, 5, 7, 11, 13))


def test_invalid_shares_are_refused():
    with pytest.raises(ConfigurationError, match="secret: got '3 bytes', needed 32 bytes"):
        share(b"abc", 1, [1])
    with pytest.raises(ConfigurationError, match="threshold: got 3, needed at most the number of points, 2"):
        share(bytes(32), 3, [1, 2])
    with pytest.raises(ConfigurationError, match="different whole numbers >= 1"):
        share(bytes(32), 1, [0, 1])
    with pytest.raises(ConfigurationError, match="shares of one secret"):
        reconstruct({1: (2**256 + 1).to_bytes(33, "big")})


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.one_of(st.none(), st.integers(1, 45)), st.integers(0, 99))
def test_graph_is_regular_mutual_and_connected(n, degree, seed):
    clients = list(range(5, 5 + n))
    found = neighbors(clients, degree, seed)
    expected = n - 1 if degree is None else min(n - 1, degree + degree % 2)
    assert all(len(set(others)) == expected and c not in others for c, others in found.items())
    assert all(c in found[other] for c, others in found.items() for other in others)
    reached, more = {5}, {5}
    while more:
        more = {o for c in more for o in found[c]} - reached
        reached |= more
    assert reached == set(clients)
    assert found == neighbors(clients, degree, seed)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(0, 999),
    st.sampled_from([(16, 6, 4.0), (32, 16, 8.0), (64, 40, 100.0), (21, 9, 7.3)]),
)
def test_sum_of_codes_encodes_the_sum(n, seed, numbers):
    code = FixedPoint(*numbers)
    code.check(n)
    x = np.random.default_rng(seed).uniform(-code.largest, code.largest, (n, 7))
    x[:, 0] = code.largest * (1 if seed % 2 else -1)
    total = reduce(np.add.reduce(code.encode(x), axis=0, dtype=code.encode(x).dtype), code.bits)
    assert np.abs(code.decode(total) - x.sum(axis=0)).max() <= n * 2.0 ** (-code.fraction_bits - 1) * (1 + 1e-9)


def test_capacity_is_the_maximum_without_overflow():
    code = FixedPoint(bits=8, fraction_bits=3, largest=2.0)
    code.check(7)
    with pytest.raises(ConfigurationError, match=r"a sum of 8 clients' .* which have room for 7"):
        code.check(8)
    full = code.encode(np.full((7, 1), 2.0))
    assert code.decode(reduce(full.sum(axis=0, dtype=full.dtype), 8)) == 14.0


def test_too_large_numbers_are_refused_or_clipped():
    for bad in (2.5, -2.5, np.inf, np.nan):
        with pytest.raises(ConfigurationError, match=r"does not fit, for largest=2.*too_large='clip'"):
            FixedPoint(largest=2.0).encode(np.array([0.0, bad]))
    clipping = FixedPoint(largest=2.0, too_large="clip")
    np.testing.assert_array_equal(clipping.decode(clipping.encode(np.array([2.5, -np.inf, 1.0]))), [2.0, -2.0, 1.0])
    with pytest.raises(ConfigurationError, match="number of size nan"):
        clipping.encode(np.array([np.nan]))
    assert clipping.encode(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 1}, "bits: got 1"),
        ({"bits": 65}, "bits: got 65, needed a whole number of at most 64"),
        ({"fraction_bits": -1}, "fraction_bits: got -1"),
        ({"largest": 0.0}, "largest: got 0.0"),
        ({"too_large": "wrap"}, "unknown value of too_large 'wrap'"),
        ({"bits": 64, "fraction_bits": 60}, "more than 53 digits"),
    ],
)
def test_invalid_options_raise(options, message):
    with pytest.raises(ConfigurationError, match=message):
        FixedPoint(**options)
