"""Draw Gaussian numbers on a grid exactly, many at a time, by rejection.

A number is ``k + x`` with a sign: the integer k >= 0 has a probability proportional to ``exp(-k^2 / 2)``, x is uniform on
[0, 1), and the pair is accepted with probability ``exp(-x (2 k + x) / 2)`` (Karney, Algorithms N and D). Float64 decides the
comparisons with random numbers of 53 bits. Those that it cannot decide, about one in 2^30, are decided by
`turnout.privacy.exact` with further bits. The distributions are therefore exact: no number of the grid is impossible, however
far out, and probabilities have no rounding error. What remains is the generator of the random bits.

Reference: Karney, "Sampling exactly from the normal distribution", ACM Transactions on Mathematical Software 42(1), 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cached_property
from itertools import count
from typing import Protocol

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
_FURTHER = 1 << 32  # the first draw of further bits


class _Candidates(Protocol):
    """Candidates for numbers of a distribution, before a sign.

    Attributes:
        one_zero: reject a negative zero, so that zero does not count twice.
    """

    one_zero: bool

    def proposed(self, level: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return integers, their exponents (infinite for those to reject), and whether float64 leaves an integer open."""
        ...

    def exactly(self, level: int, x: exact.Uniform) -> tuple[int, Callable[[int], Fraction] | None]:
        """Return an integer, and its exponent as a function of the precision; None to reject it."""
        ...


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


def _thresholds() -> torch.Tensor:
    """Return the probabilities of at most 0, 1, 2, ... for integers with ``P[k] ~ exp(-k^2 / 2)``."""
    terms = torch.exp(-0.5 * torch.arange(_LEVELS + 5, dtype=torch.float64).square())
    return (terms.cumsum(0) / terms.sum())[:_LEVELS]


def _drawn(words: Words, number: int, candidates: _Candidates, device: torch.device) -> torch.Tensor:
    """Draw numbers by rejection."""
    drawn, thresholds = torch.empty(number, dtype=torch.float64, device=device), _thresholds().to(device)
    block = _BLOCK if device.type == "cpu" else _BLOCK_ON_GPU
    for first in range(0, number, block):
        rest, trials = torch.arange(first, min(first + block, number), device=device), count()
        while len(rest):
            values, accepted = _tried(words, rest, next(trials), candidates, thresholds)
            done = accepted.nonzero().flatten()  # faster than an index of booleans
            drawn[rest[done]] = values[done]
            rest = rest[(~accepted).nonzero().flatten()]
    return drawn


def _tried(
    words: Words, positions: torch.Tensor, trial: int, candidates: _Candidates, thresholds: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a candidate for each position, and whether it is accepted."""
    bits = [words(positions, 3 * trial + draw) for draw in range(3)]
    first, x, last = map(uniform, bits)
    level = torch.bucketize(first - _UNSURE, thresholds)
    unsure = level != torch.bucketize(first + _UNSURE, thresholds)
    value, exponent, is_open = candidates.proposed(level.double(), x)
    chance = torch.exp(-exponent)
    unsure |= is_open | ((last - chance).abs() < _UNSURE)
    negative = (bits[0] & 1).bool()
    value = torch.where(negative, -value, value) + 0.0  # no negative zero
    accepted = last < chance
    if candidates.one_zero:
        accepted &= ~(negative & (value == 0))
    for row in unsure.nonzero().flatten().tolist():
        further = count(_FURTHER * (trial + 1))

        def more(at: torch.Tensor = positions[row : row + 1], further: Iterator[int] = further) -> int:
            return int(words(at, next(further))) & (2**64 - 1)

        value[row], accepted[row] = _decided([int(word[row]) for word in bits], candidates, more)
    return value, accepted


def _decided(bits: list[int], candidates: _Candidates, more: Callable[[], int]) -> tuple[int, bool]:
    """Return a candidate and whether it is accepted, by exact arithmetic."""
    first, x, last = (exact.Uniform(word >> 11 & (2**53 - 1), more) for word in bits)
    value, exponent = candidates.exactly(exact.level(first), x)
    negative = bool(bits[0] & 1)
    if exponent is None or (candidates.one_zero and negative and not value):
        return 0, False
    return (-value if negative else value), exact.happens(last, exponent)
