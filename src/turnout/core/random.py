"""Draw counter-based random numbers: every draw is a pure function of integers such as (seed, version, client).

There is no state between draws, so that results do not depend on the engine, on chunking, on the order of arrival, on the
number of processes or on interruptions. The same code runs on NumPy arrays and on torch tensors (int64, wrapping arithmetic)
and gives the same bits on both.

The mixer is SplitMix64's finalizer; reference: Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeVar, cast, overload

import numpy as np
import torch

Integers = TypeVar("Integers", np.ndarray, torch.Tensor)

# 64-bit constants as signed integers, because torch has little unsigned arithmetic.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_ALL = 2**64 - 1


def _wrap(value: int) -> int:
    """Reduce a Python integer to the signed 64-bit number with the same low bits."""
    value &= _ALL
    return value - 2**64 if value >= 2**63 else value


def mix(state: Any) -> Any:
    """Scramble 64-bit integers by SplitMix64's finalizer, a bijection, elementwise."""
    state = (state ^ ((state >> 30) & 0x3FFFFFFFF)) * _FIRST
    state = (state ^ ((state >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return state ^ ((state >> 31) & 0x1FFFFFFFF)


@overload
def stream(purpose: str, *parts: int) -> int: ...
@overload
def stream(purpose: str, *parts: int | np.ndarray) -> Any: ...
def stream(purpose: str, *parts: int | np.ndarray) -> Any:
    """Return a 64-bit key for a purpose ("minibatches", "availability", ...) and integers such as the seed.

    Different purposes have different random numbers, so that a new use of randomness does not change any other. For int64
    arrays of integers it returns an array of keys.
    """
    key: Any = zlib.crc32(purpose.encode())
    for part in parts:
        key = _mixed((part if isinstance(part, np.ndarray) else int(part)) + key + _GOLDEN)
    return _mixed(key)


def _mixed(value: Any) -> Any:
    """Return `mix`, of a Python integer at a tenth of the time of an array with one element."""
    if isinstance(value, np.ndarray):
        return mix(value)
    state = value & _ALL
    state = (state ^ (state >> 30)) * _FIRST & _ALL
    state = (state ^ (state >> 27)) * _SECOND & _ALL
    return _wrap(state ^ (state >> 31))


def fold(key: int | Integers, *parts: Integers) -> Integers:
    """Fold integer arrays, broadcast against each other, into a key, and return 64 random bits for each entry.

    >>> fold(stream("dropout", 0), np.array([3]), np.array([7, 8])).shape  # version 3, clients 7 and 8
    (2,)

    Raises:
        TypeError: if a part is a plain integer, whose product would overflow.
    """
    state: Any = _wrap(key) if isinstance(key, int) else key
    for part in parts:
        if isinstance(part, int | np.integer):
            raise TypeError(
                f"fold: got the plain integer {part}, needed an int64 array or tensor: fold integers with stream(purpose, "
                f"seed, {part}), or write np.array([{part}])"
            )
        state = mix(part * _GOLDEN + state)
    return cast("Integers", state)


def uniform(bits: Integers) -> Integers:
    """Turn 64 random bits into float64 numbers, uniform on [0, 1)."""
    mantissa = (bits >> 11) & (2**53 - 1)
    if isinstance(mantissa, torch.Tensor):
        return mantissa.to(torch.float64) * 2.0**-53
    return mantissa.astype(np.float64) * 2.0**-53


def normal(bits: torch.Tensor) -> torch.Tensor:
    """Turn 64 random bits into float64 numbers from the standard normal distribution.

    >>> normal(torch.tensor([-(2**62), 0, 2**62])).round(decimals=4)
    tensor([ 0.6745, -8.2924, -0.6745], dtype=torch.float64)
    """
    return torch.special.ndtri(uniform(bits) + 2.0**-54)  # never of 0, where it is infinite


def below(bits: Integers, limit: Any) -> Integers:
    """Turn 64 random bits into integers uniform on {0, ..., limit - 1}; `limit` (< 2**31) broadcasts.

    Multiplies 32 of the bits by the limit and takes the upper 32 bits; the bias is below limit / 2**32.
    """
    return (((bits >> 31) & (2**32 - 1)) * limit) >> 32


def generator(purpose: str, *parts: int) -> np.random.Generator:
    """Return a NumPy generator for draws at the start of a run (data partitions, participation rates)."""
    return np.random.default_rng(stream(purpose, *parts) & _ALL)
