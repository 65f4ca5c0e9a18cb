"""Draw Gaussian numbers on a grid exactly, many at a time, by rejection.

A number is ``k + x`` with a sign: the integer k >= 0 has a probability proportional to ``exp(-k^2 / 2)``, x is uniform on
[0, 1), and the pair is accepted with probability ``exp(-x (2 k + x) / 2)`` (Karney, Algorithms N and D). Float64 decides the
comparisons with random numbers of 21 to 53 bits. Those that it cannot decide, about one in a million, are decided by
`turnout.privacy.exact` with further bits. The distributions are therefore exact: no number of the grid is impossible, however
far out, and probabilities have no rounding error. What remains is the generator of the random bits.

Reference: Karney, "Sampling exactly from the normal distribution", ACM Transactions on Mathematical Software 42(1), 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import count
from typing import Any

import torch

from turnout.core.random import uniform
from turnout.privacy import exact

FINEST, COARSEST = 4.0, 2.0**30
"""Minimum and maximum standard deviation of a client's share of discrete noise, in units of the grid.

The sum of n shares of standard deviation s is no discrete Gaussian, but increases the inverse of the noise multiplier by at
most ``tau sqrt(P)``, ``tau = 10 sum_{k<n} exp(-2 pi^2 s^2 k / (k + 1)) <= 10 n exp(-pi^2 s^2)``: for s >= 4 this is less than
``n sqrt(P) 10^-67``, which is below the resolution of floating-point numbers (Kairouz, Liu and Steinke, "The distributed
discrete Gaussian mechanism for federated learning with secure aggregation", ICML 2021, Proposition 14). With the maximum, the
integers of a sum are exact in float64.
"""

WIDEST = 12.0
"""The number of standard deviations for which a client's numbers have room under masks. Larger ones, with a probability of
10^-32, are replaced by the largest that fits, so that the possible values do not depend on the client's data."""

Words = Callable[[torch.Tensor, int], torch.Tensor]
"""Random bits: a function of positions, int64 ``[n]``, and of the number of a draw that returns 64 bits, int64 ``[n]``."""

_BLOCK, _BLOCK_ON_GPU = 1 << 16, 1 << 24  # numbers at a time
_UNSURE = 2.0**-34  # float64 decides comparisons of numbers that differ by more
_LEVELS = 10  # levels that float64 tells apart; all others are left to exact arithmetic
_FIRST, _LAST = 12, 21  # the bits that decide most levels, and those that decide most acceptances
_SIGN = 1 << 10
_FURTHER = 1 << 32  # the first draw of further bits


def rounded_gaussian(words: Words, number: int, bits: int, device: torch.device) -> torch.Tensor:
    """Draw integers ``round(2^bits y)``, float64 ``[number]``, y standard Gaussian.

    Args:
        words: random bits.
        number: number of integers.
        bits: from 0 to 48.
        device: device of the integers.
    """
    return _drawn(words, number, _Rounded(bits), device)


def discrete_gaussian(words: Words, number: int, deviation: float, device: torch.device) -> torch.Tensor:
    """Draw integers, float64 ``[number]``, with ``P[k] ~ exp(-k^2 / (2 s^2))``.

    Args:
        words: random bits.
        number: number of integers.
        deviation: s, from `FINEST` to `COARSEST`.
        device: device of the integers.

    Reference: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
    """
    return _drawn(words, number, _Discrete(deviation), device)


class _Rounded:
    """Candidates for a Gaussian number that is rounded to a multiple of ``2^-bits``."""

    one_zero = False

    def __init__(self, bits: int) -> None:
        self._unit = 2**bits

    def proposed(self, level: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        value = (x * self._unit + 0.5).floor() + level * self._unit  # the first 53 bits of x decide
        return value, x * (level + 0.5 * x), torch.zeros_like(x, dtype=torch.bool)

    def exactly(self, level: int, x: exact.Uniform) -> tuple[int, Callable[[int], Fraction] | None]:
        value = math.floor(x.lower(53) * self._unit + Fraction(1, 2)) + level * self._unit

        def exponent(size: int) -> Fraction:
            lower = x.lower(size + level.bit_length())
            return lower * (2 * level + lower) / 2

        return value, exponent


class _Discrete:
    """Candidates for a discrete Gaussian number of deviation s: integers in ``[k s, (k + 1) s)``."""

    one_zero = True

    def __init__(self, deviation: float) -> None:
        self._deviation, self._exact = deviation, Fraction(deviation)
        self._most = math.ceil(self._exact)

    def _first(self, level: int) -> int:
        """Return the smallest integer of a level."""
        return math.ceil(level * self._exact)

    @cached_property
    def _firsts(self) -> torch.Tensor:
        return torch.tensor([self._first(level) for level in range(_LEVELS + 2)], dtype=torch.float64)

    def proposed(self, level: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        firsts, index, step = self._firsts.to(x.device), level.long(), x * self._most
        value = firsts[index] + step.floor()
        relative = value / self._deviation
        exponent = 0.5 * (relative - level) * (relative + level)
        beside = (step - step.round()).abs()  # the distance from the next integer, which rounding may hide
        rejected = value >= firsts[index + 1]
        return value, exponent.where(~rejected, torch.inf), beside < max(2.0**-20, self._most * 2.0**-50)

    def exactly(self, level: int, x: exact.Uniform) -> tuple[int, Callable[[int], Fraction] | None]:
        size = next(
            size for size in count(64, 64)
            if math.floor(x.lower(size) * self._most) == math.floor((x.lower(size) + Fraction(1, 2**size)) * self._most)
        )  # fmt: skip
        value = self._first(level) + math.floor(x.lower(size) * self._most)
        if value >= self._first(level + 1):
            return value, None
        exponent = ((value / self._exact) ** 2 - level**2) / 2
        return value, lambda _: exponent


_Candidates = _Rounded | _Discrete
"""Candidates for numbers of a distribution, before a sign.

`proposed` returns integers, their exponents (infinite for those to reject), and whether float64 leaves an integer open.
`exactly` returns an integer, and its exponent as a function of the precision; None to reject it. With `one_zero`, a
negative zero is rejected, so that zero does not count twice.
"""


@lru_cache(maxsize=4)
def _tables(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the level for each value of the first bits, NaN if further bits decide, and the thresholds between levels.

    Thresholds are the probabilities of at most 0, 1, 2, ... for integers with ``P[k] ~ exp(-k^2 / 2)``.
    """
    terms = torch.exp(-0.5 * torch.arange(_LEVELS + 5, dtype=torch.float64).square())
    thresholds = (terms.cumsum(0) / terms.sum())[:_LEVELS]
    edges = torch.arange(2**_FIRST + 1, dtype=torch.float64) / 2**_FIRST
    low, high = torch.bucketize(edges[:-1] - _UNSURE, thresholds), torch.bucketize(edges[1:] + _UNSURE, thresholds)
    return low.double().where(low == high, torch.nan).to(device), thresholds.to(device)


def _levels(bits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the integer k of each candidate, float64, and the rows in which float64 leaves it open."""
    table, thresholds = _tables(bits.device)
    level = table[(bits >> (64 - _FIRST)) & (2**_FIRST - 1)]
    rows = level.isnan().nonzero().flatten()
    chance = uniform(bits[rows])
    low, high = (torch.bucketize(chance + margin, thresholds) for margin in (-_UNSURE, _UNSURE))
    level[rows] = low.double()
    return level, rows[low != high]


def _drawn(words: Words, number: int, candidates: _Candidates, device: torch.device) -> torch.Tensor:
    """Draw numbers by rejection."""
    drawn = torch.empty(number, dtype=torch.float64, device=device)
    block = _BLOCK if device.type == "cpu" else _BLOCK_ON_GPU
    for first in range(0, number, block):
        rest, trials = torch.arange(first, min(first + block, number), device=device), count()
        while len(rest):
            values, accepted = _tried(words, rest, next(trials), candidates)
            drawn[rest] = values
            rest = rest[(~accepted).nonzero().flatten()]  # faster than an index of booleans
    return drawn


def _tried(
    words: Words, positions: torch.Tensor, trial: int, candidates: _Candidates
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a candidate for each position, and whether it is accepted.

    Of the first 64 bits, 53 are for k, one is the sign, and ten are for the acceptance. Of the second, 53 are for x, and
    eleven for the acceptance.
    """
    one, other = (words(positions, 2 * trial + draw) for draw in range(2))
    level, rows = _levels(one)
    value, exponent, is_open = candidates.proposed(level, uniform(other))
    chance, last = torch.exp(-exponent), _last(one, other) * 2.0**-_LAST
    unsure = is_open | ((last - chance).abs() < 2.0**-_LAST + _UNSURE)
    unsure[rows] = True
    negative = (one & _SIGN).bool()
    value = torch.where(negative, -value, value) + 0.0  # no negative zero
    accepted = last < chance
    if candidates.one_zero:
        accepted &= ~(negative & (value == 0))
    for row in unsure.nonzero().flatten().tolist():
        further = count(_FURTHER * (trial + 1))

        def more(at: torch.Tensor = positions[row : row + 1], further: Iterator[int] = further) -> int:
            return int(words(at, next(further))) & (2**64 - 1)

        value[row], accepted[row] = _decided(int(one[row]), int(other[row]), candidates, more)
    return value, accepted


def _last(one: Any, other: Any) -> Any:
    """Return the bits for the acceptance."""
    return ((one & (_SIGN - 1)) << 11) | (other & (2**11 - 1))


def _decided(one: int, other: int, candidates: _Candidates, more: Callable[[], int]) -> tuple[int, bool]:
    """Return a candidate and whether it is accepted, by exact arithmetic."""
    first, x = (exact.Uniform(word >> 11 & (2**53 - 1), 53, more) for word in (one, other))
    value, exponent = candidates.exactly(exact.level(first), x)
    negative = bool(one & _SIGN)
    if exponent is None or (candidates.one_zero and negative and not value):
        return 0, False
    return (-value if negative else value), exact.happens(exact.Uniform(_last(one, other), _LAST, more), exponent)
