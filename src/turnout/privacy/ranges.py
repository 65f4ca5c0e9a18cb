"""Check the ranges of noise and of bounds."""

from __future__ import annotations

from typing import Annotated

from turnout.core.checks import in_range

DEVIATIONS = 1e-3, 1e6
"""The smallest and the largest noise multiplier; a round with less noise has an epsilon above 500,000."""

BOUNDS = 1e-30, 1e9
"""The smallest and the largest bound of what a client contributes, with which sums with noise are finite in float32."""


_DEVIATIONS = f"a number from {DEVIATIONS[0]:g} to {DEVIATIONS[1]:,.0f}"
_USEFUL = "Useful values are about 0.3 to 30"

check_bound = in_range(
    f"a number from {BOUNDS[0]:g} to {BOUNDS[1]:g}, so that sums with noise stay finite",
    lambda value: BOUNDS[0] <= value <= BOUNDS[1],
)
"""Check that a bound of what a client contributes is in `BOUNDS`."""


def _is_deviation(value: float) -> bool:
    return DEVIATIONS[0] <= value <= DEVIATIONS[1]


Deviation = Annotated[float, in_range(_DEVIATIONS, _is_deviation, _USEFUL)]
"""The standard deviation of noise, relative to the sensitivity."""

DeviationOrZero = Annotated[
    float, in_range(f"0 for no noise, or {_DEVIATIONS}", lambda value: value == 0 or _is_deviation(value), _USEFUL)
]
"""The standard deviation of noise, relative to the sensitivity, or 0 for no noise."""

Bound = Annotated[float, check_bound]
"""A bound of what a client contributes."""
