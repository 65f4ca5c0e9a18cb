"""Decide by arithmetic of any precision what a few random bits and float64 leave open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import count

_DIGITS = 40  # digits of the first attempt; each further one has as many more
_MARGIN = 8  # last digits of a sum of exponential functions that may be wrong


class Uniform:
    """A random number on [0, 1) with as many binary digits as a decision needs.

    Args:
        digits: the first digits as an integer.
        size: their number.
        more: function that returns 64 further random bits as an integer in [0, 2^64).
    """

    def __init__(self, digits: int, size: int, more: Callable[[], int]) -> None:
        self._digits, self._size, self._more = digits, size, more

    def lower(self, size: int) -> Fraction:
        """Return the number cut off after at least `size` digits; the number itself is above by less than ``2^-size``."""
        while self._size < size:
            self._digits, self._size = (self._digits << 64) + self._more(), self._size + 64
        return Fraction(self._digits, 2**self._size)


def level(chance: Uniform) -> int:
    """Return an integer k >= 0 with probability proportional to ``exp(-k^2 / 2)``, by inversion."""
    for precision, margin, lower in _attempts(chance):
        terms, below = list[Decimal](), Decimal(0)
        while not terms or terms[-1] > Decimal(10) ** -precision:
            terms.append((Decimal(-(len(terms) ** 2)) / 2).exp())
        for k, term in enumerate(terms):
            above = below + term / sum(terms)
            if (not k or lower > below + margin) and lower < above - margin:
                return k
            below = above
    raise AssertionError


def happens(chance: Uniform, exponent: Callable[[int], Fraction]) -> bool:
    """Return true with probability ``exp(-x)``.

    Args:
        chance: the random number.
        exponent: function that returns x, >= 0, with an error of less than ``16 2^-size`` for a size.
    """
    for precision, margin, lower in _attempts(chance):
        probability = (-_decimal(exponent(4 * precision))).exp()
        if abs(lower - probability) > margin:
            return lower < probability
    raise AssertionError


def _attempts(chance: Uniform) -> Iterator[tuple[int, Decimal, Decimal]]:
    """Yield a number of digits, a bound of errors at that number, and the random number, with more and more digits."""
    for precision in count(_DIGITS, _DIGITS):
        with localcontext(prec=precision):
            yield precision, Decimal(10) ** (_MARGIN - precision), _decimal(chance.lower(4 * precision))


def _decimal(number: Fraction) -> Decimal:
    """Return a fraction as a decimal number."""
    return Decimal(number.numerator) / Decimal(number.denominator)
