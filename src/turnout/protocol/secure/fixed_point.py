"""Real numbers as whole numbers modulo a power of two, so that masks can be added to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnout.core.checks import ConfigurationError, count, positive, refuse
from turnout.protocol.secure.masks import reduce, word


@dataclass(frozen=True)
class FixedPoint:
    """Write x as ``round(x 2^f) mod 2^bits``, so that sums of the codes are codes of the sums.

    A sum of n numbers is off by at most ``n 2^(-f-1)``. It does not overflow if
    ``n (largest 2^f) <= 2^(bits-1) - 1``, which `check` refuses otherwise.

    Args:
        bits: of the modulus, 2 to 64.
        fraction_bits: f, of the part behind the point.
        largest: that a number may be, in absolute value.
        too_large: ``"refuse"`` refuses a vector with a larger number; ``"clip"`` takes the nearest that fits.
    """

    bits: int = 32
    fraction_bits: int = 16
    largest: float = 8.0
    too_large: Literal["refuse", "clip"] = "refuse"

    def __post_init__(self) -> None:
        count("bits", self.bits, least=2)
        count("fraction_bits", self.fraction_bits, least=0)
        positive("largest", self.largest)
        if self.bits > 64:
            raise refuse("bits", given=self.bits, needed="2 to 64")
        if self.too_large not in ("refuse", "clip"):
            raise refuse("too_large", given=self.too_large, needed="'refuse' or 'clip'")
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
        """Return how many numbers can be summed for certain."""
        return (2 ** (self.bits - 1) - 1) // max(self._unit, 1)

    def check(self, clients: int) -> None:
        """Refuse more clients than a sum has room for.

        Raises:
            ConfigurationError: with what to change.
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
            ConfigurationError: for NaN, and for numbers beyond `largest` unless they are to be clipped.
        """
        values = np.asarray(values, dtype=np.float64)
        if not len(values.reshape(-1)):
            return np.zeros(values.shape, dtype=word(self.bits))
        top = np.abs(values).max()
        if np.isnan(top) or (top > self.largest and self.too_large == "refuse"):
            raise self.overflow(float(top))
        whole = np.rint(np.clip(values, -self.largest, self.largest) * 2.0**self.fraction_bits).astype(np.int64)
        return reduce(whole.astype(word(self.bits)), self.bits)

    def overflow(self, top: float) -> ConfigurationError:
        """Return the error for a number of this size that does not fit."""
        return ConfigurationError(
            f"an update with a number of size {top:g} does not fit, for largest={self.largest:g}: write a larger one (and "
            "fewer fraction_bits, if the sum needs the room), too_large='clip', or clip updates by a guard"
        )

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the real numbers, float64, whose codes (or sums of codes) these are."""
        unused = 64 - self.bits
        signed = (codes.astype(np.uint64) << np.uint64(unused)).view(np.int64) >> np.int64(unused)
        return signed / 2.0**self.fraction_bits
