"""Encode real numbers as integers modulo a power of two, to which masks can be added."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np

from turnout.core.checks import ConfigurationError, count
from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Positive, Whole
from turnout.protocol.secure.masks import reduce, word


@dataclass(frozen=True)
class FixedPoint(ExplainsArguments):
    """Encode real numbers x as integers ``round(x 2^f) mod 2^bits``, so that sums of codes are codes of sums.

    The error of a sum of n numbers is at most ``n 2^(-f-1)``. The sum does not overflow if ``n (largest 2^f) <=
    2^(bits-1) - 1``, which `check` verifies.

    Args:
        bits: number of bits of the modulus, 2 to 64.
        fraction_bits: f, the number of fractional bits, >= 0.
        largest: maximum absolute value of a number, > 0.
        too_large: ``"refuse"`` raises an error for larger numbers; ``"clip"`` clips them to `largest`.

    Raises:
        ConfigurationError: if an option is out of range, or if numbers would need more than the 53 digits of a float.

    Example:
        >>> code = FixedPoint(bits=16, fraction_bits=4)
        >>> code.encode(np.array([1.5, -2.0])).tolist()
        [24, 65504]
        >>> code.decode(code.encode(np.array([1.5, -2.0])))
        array([ 1.5, -2. ])
    """

    bits: Annotated[int, partial(count, least=2, most=64)] = 32
    fraction_bits: Whole = 16
    largest: Positive = 8.0
    too_large: Literal["refuse", "clip"] = "refuse"

    def __post_init__(self) -> None:
        if self._unit > 2**53:
            raise ConfigurationError(
                f"largest={self.largest:g} with fraction_bits={self.fraction_bits} has more than 53 digits, which no float "
                "holds: write fewer fraction_bits"
            )

    @property
    def _unit(self) -> int:
        """The code of `largest`."""
        return round(self.largest * 2**self.fraction_bits)

    @property
    def capacity(self) -> int:
        """The number of numbers that can be summed without overflow."""
        return (2 ** (self.bits - 1) - 1) // max(self._unit, 1)

    def check(self, clients: int) -> None:
        """Check that a sum over `clients` clients cannot overflow.

        Raises:
            ConfigurationError: if it can; the message names options that would fit.
        """
        if clients > self.capacity:
            raise ConfigurationError(
                f"a sum of {clients} clients' numbers up to {self.largest:g} with {self.fraction_bits} bits behind the point "
                f"does not fit {self.bits} bits, which have room for {self.capacity}: write more bits, fewer "
                "fraction_bits or a smaller largest"
            )

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return the codes of real numbers, of any shape, as `word`.

        Raises:
            ConfigurationError: if a number is NaN, or is beyond `largest` and `too_large` is ``"refuse"``.
        """
        values = np.asarray(values, dtype=np.float64)
        top = np.abs(values).max(initial=0.0)
        if np.isnan(top) or (top > self.largest and self.too_large == "refuse"):
            raise self.overflow(float(top))
        whole = np.rint(np.clip(values, -self.largest, self.largest) * 2.0**self.fraction_bits).astype(np.int64)
        return reduce(whole.astype(word(self.bits)), self.bits)

    def overflow(self, top: float) -> ConfigurationError:
        """Return the error for a number that is too large."""
        return ConfigurationError(
            f"an update with a number of size {top:g} does not fit, for largest={self.largest:g}: write a larger one (and "
            "fewer fraction_bits, if the sum needs the room), too_large='clip', or clip updates by a guard"
        )

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the real numbers, float64, of codes or of sums of codes."""
        unused = 64 - self.bits  # shifted left and back, so that the sign bit is extended
        signed = (codes.astype(np.uint64) << np.uint64(unused)).view(np.int64) >> np.int64(unused)
        return signed / 2.0**self.fraction_bits
