"""Define ranges of numbers for searches."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from turnout.core.checks import is_finite, read_number, refuse

__all__ = ["Range"]

_DIGITS = 4
"""Significant digits of proposed numbers, so that the printed number is exactly the one that was tried."""


@dataclass(frozen=True)
class Range:
    """A range of numbers from `low` to `high`; of whole numbers if both of them are.

    Args:
        low, high: the least and the greatest number.
        log: search on a logarithmic scale.

    Raises:
        ConfigurationError: if ends are not numbers, in the wrong order, or not positive with `log`.

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
            raise refuse("range", given=str(self), needed="numbers above 0 if it is logarithmic")

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' * self.log}"

    @property
    def whole(self) -> bool:
        """True for a range of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @classmethod
    def read(cls, text: object) -> Range | None:
        """Parse a range, ``1..20`` or ``0.001..1:log``; None for a value that is not a text with two dots.

        Raises:
            ConfigurationError: if two dots are not between numbers.
        """
        if not isinstance(text, str) or ".." not in text:
            return None
        match = re.fullmatch(r"([^.].*?|\.\d.*?)\.\.([^:]+)(:log)?", text.strip())
        ends = [read_number(end) for end in match.groups()[:2]] if match else [None]
        if match is None or None in ends:
            raise refuse("range", given=text, needed="two numbers, as in 1..20, 0.0..0.5 or 0.001..1:log")
        low, high = (end for end in ends if end is not None)
        return cls(low, high, match.group(3) is not None)

    def rounded(self, value: float) -> float:
        """Round a number of the range to a few digits."""
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)

    def position(self, value: float) -> float:
        """Return the relative position of a number, 0 at `low` and 1 at `high`."""
        low, high, x = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return (x - low) / (high - low)
