"""Hash-based random numbers."""

import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.random import below, fold, generator, mix, stream, uniform

integers = st.integers(-(2**63), 2**63 - 1)


def test_mix_is_the_finalizer_of_splitmix64():
    """The first outputs of SplitMix64 with seed 0, published with its reference implementation."""
    golden = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
    states = np.concatenate([golden * np.uint64(i) for i in (1, 2, 3)]).view(np.int64)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert list(mix(states).view(np.uint64)) == expected


@given(st.lists(integers, min_size=1, max_size=8), st.lists(integers, min_size=1, max_size=8), integers)
def test_numpy_and_torch_give_the_same_bits(first, second, key):
    a, b = np.array(first)[:, None], np.array(second)
    bits = fold(key, a, b)
    other = fold(key, torch.from_numpy(a), torch.from_numpy(b))
    np.testing.assert_array_equal(bits, other.numpy())
    np.testing.assert_array_equal(uniform(bits), uniform(other).numpy())
    np.testing.assert_array_equal(below(bits, 1000), below(other, 1000).numpy())


@given(integers, st.integers(1, 2**31 - 1))
def test_draws_are_in_range(bits, limit):
    one = np.array([bits])
    assert 0 <= uniform(one)[0] < 1
    assert 0 <= below(one, limit)[0] < limit


def test_draws_have_their_distribution():
    bits = fold(stream("test"), np.arange(100_000))
    u, k = uniform(bits), below(bits, 7)
    assert abs(u.mean() - 0.5) < 4 * np.sqrt(1 / 12 / len(u))
    assert np.abs(np.histogram(u, 20, (0, 1))[0] - 5000).max() < 5 * np.sqrt(5000)
    assert np.abs(np.bincount(k, minlength=7) - len(k) / 7).max() < 5 * np.sqrt(len(k) / 7)


@pytest.mark.parametrize("part", [3, np.int64(2**62)])
def test_plain_integer_is_refused_with_a_correction(part):
    with pytest.raises(TypeError, match=rf"fold: got the plain integer {part}, .* stream\(purpose, seed, {part}\)"):
        fold(np.arange(3), part)


def test_neighboring_keys_are_independent():
    grid = fold(stream("test", 1), np.arange(300)[:, None], np.arange(300))
    u = uniform(grid)
    assert len(np.unique(grid)) == grid.size
    for a, b in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1]), (u, u.T)):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02


def test_purposes_and_seeds_have_independent_numbers():
    keys = [
        stream(purpose, *parts) for purpose in ("a", "b") for parts in ((), (0,), (1,), (0, 1), (1, 0), (-1,), (2**63,))
    ]
    assert len(set(keys)) == len(keys)
    assert stream("a", 5) == stream("a", 5)


@pytest.mark.parametrize("other", [("a", 1), ("b", 0)])
def test_generator_is_a_function_of_its_arguments(other):
    assert generator("a", 0).random() == generator("a", 0).random()
    assert generator("a", 0).random() != generator(*other).random()


@given(purpose=st.text(max_size=5), parts=st.lists(st.integers(-(2**70), 2**70), max_size=4))
def test_stream_mixes_integers_like_arrays(purpose, parts):
    key = np.array([zlib.crc32(purpose.encode())], dtype=np.int64)
    for part in (*parts, None):
        if part is not None:
            key += np.array([part % 2**64], dtype=np.uint64).view(np.int64) + np.int64(0x9E3779B97F4A7C15 - 2**64)
        key = mix(key)
    assert stream(purpose, *parts) == key[0]


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1), st.integers(0, 2**62))
def test_stream_of_seeds_is_the_stream_of_each_seed(seeds, other):
    keys = stream("minibatches", np.array(seeds), other)
    assert keys.tolist() == [stream("minibatches", seed, other) for seed in seeds]


def test_purposes_have_distinct_keys():
    """A purpose has 32 bits in a key; reused noise would reveal a difference of sums."""
    called = re.compile(r'(?:(?:stream|generator|server_words|keys)\(\s*|noised\([^"]*|purpose = |else )"([^"]+)"')
    root = Path(__file__).parents[2]
    sources = (*(root / "src").rglob("*.py"), *root.glob("packages/*/src/**/*.py"))
    purposes = {purpose for source in sources for purpose in called.findall(source.read_text("utf-8"))}
    assert {"noise of the model", "noise of the controls", "noise of the count", "share of the noise"} <= purposes
    assert len({zlib.crc32(purpose.encode()) for purpose in purposes}) == len(purposes)
