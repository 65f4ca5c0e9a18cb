"""Declare ranges of numbers from which a sampler chooses."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from turnout.core.checks import is_finite, refuse

__all__ = ["Range"]

_DIGITS = 4
"""Significant digits of numbers that are drawn, so that the number that is printed is the one that was tried."""


@dataclass(frozen=True)
class Range:
    """Any number from `low` to `high`; whole numbers where both of them are.

    Args:
        low, high: the least and the greatest number.
        log: whether 0.01 to 0.1 is as much as 0.1 to 1.

    Raises:
        ConfigurationError: for ends that are no numbers, or in the wrong order, or not positive with `log`.

    Example:
        >>> import turnout as to
        >>> str(to.search.Range(0.001, 1.0, log=True))
        '0.001..1:log'
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            end = getattr(self, name)
            if not is_finite(end):
                raise refuse(f"{name} of a range", given=end, needed="a number")
        if not self.low < self.high:
            raise refuse(
                "range", given=f"{self.low:g}..{self.high:g}", needed="the least number first, then a greater one"
            )
        if self.log and self.low <= 0:
            raise refuse("range", given=str(self), needed="numbers above 0 where it is logarithmic")

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' * self.log}"

    @property
    def whole(self) -> bool:
        """True where it holds whole numbers alone."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @classmethod
    def read(cls, text: object) -> Range | None:
        """Return the range that is written as ``1..20`` or ``0.001..1:log``; None for what is no text with two dots.

        Raises:
            ConfigurationError: for two dots between what are no numbers.
        """
        if not isinstance(text, str) or ".." not in text:
            return None
        match = re.fullmatch(r"([^.].*?|\.\d.*?)\.\.([^:]+)(:log)?", text.strip())
        ends = [_number(end) for end in match.groups()[:2]] if match else [None]
        if match is None or None in ends:
            raise refuse("range", given=text, needed="two numbers, as in 1..20, 0.0..0.5 or 0.001..1:log")
        low, high = (end for end in ends if end is not None)
        return cls(low, high, match.group(3) is not None)

    def rounded(self, value: float) -> float:
        """Return a number of it with a few digits, as it is tried."""
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)

    def place(self, value: float) -> float:
        """Return where a number stands between the ends, 0 to 1."""
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return (at - low) / (high - low)


def _number(text: str) -> float | None:
    """Return a whole number, or another one; None where it is none."""
    for kind in (int, float):
        try:
            return kind(text.strip())
        except ValueError:
            continue
    return None
