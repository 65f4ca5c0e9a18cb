"""Check the ranges of noise and of bounds."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from turnout.core.checks import is_finite, refuse

DEVIATIONS = 1e-3, 1e6
"""The smallest and the largest noise multiplier; a round with less noise has an epsilon above 500,000."""

BOUNDS = 1e-30, 1e9
"""The smallest and the largest bound of what a client contributes, with which sums with noise are finite in float32."""


def check_deviation(name: str, value: float, *, zero: bool = False) -> None:
    """Check that the standard deviation of noise is in the supported range.

    Args:
        name: the name of the option.
        value: the value.
        zero: allow 0, which is no noise.

    Raises:
        ConfigurationError: if a number is out of range.
    """
    if not is_finite(value) or not (DEVIATIONS[0] <= value <= DEVIATIONS[1] or (zero and value == 0)):
        needed = f"{'0 for no noise, or ' * zero}a number from {DEVIATIONS[0]:g} to {DEVIATIONS[1]:,.0f}"
        raise refuse(name, given=value, needed=needed, instead="Useful values are about 0.3 to 30")


def check_bound(name: str, value: float) -> None:
    """Check that a bound of what a client contributes is in `BOUNDS`.

    Raises:
        ConfigurationError: if it is not.
    """
    smallest, largest = BOUNDS
    if not is_finite(value) or not smallest <= value <= largest:
        needed = f"a number from {smallest:g} to {largest:g}, so that sums with noise stay finite"
        raise refuse(name, given=value, needed=needed)


Deviation = Annotated[float, check_deviation]
"""The standard deviation of noise, relative to the sensitivity."""

DeviationOrZero = Annotated[float, partial(check_deviation, zero=True)]
"""The standard deviation of noise, relative to the sensitivity, or 0 for no noise."""

Bound = Annotated[float, check_bound]
"""A bound of what a client contributes."""
