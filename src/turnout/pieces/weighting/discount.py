"""Discount reports by their staleness (FedBuff, FedAsync, and exponential rules for comparison)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from turnout.base import Weighting, Weights
from turnout.core.ranges import NotNegative, Positive, Whole
from turnout.core.types import Federation, Report, State

Rule = Literal["constant", "polynomial", "exponential", "hinge"]

_LARGEST = 600.0  # bound of the exponent, so that sums of exp(exponent) over a buffer do not overflow in float64


@dataclass(frozen=True)
class ByStaleness(Weighting, name="by_staleness"):
    """Weight each report by a function of its staleness (FedAsync, section 5.2; FedBuff, section 5).

    ``w_b <- w_b s(tau_b)``, where w_b is the weight of report b. Its staleness tau_b is the number of server steps
    since the version that the client trained from. `rule` chooses s::

        constant     s = 1
        polynomial   s = (1 + tau)^-exponent                                       FedBuff with exponent 1/2; FedAsync
        exponential  s = base^tau                                                  for comparison
        hinge        s = 1 where tau <= grace, else 1 / (slope (tau - grace) + 1)  FedAsync

    Args:
        rule: ``"constant"``, ``"polynomial"``, ``"exponential"`` or ``"hinge"``.
        exponent: exponent of the polynomial rule, >= 0.
        base: base of the exponential rule, > 0. 0.5 favors fresh reports; 2 is the "reverse exponential" of
            FedStaleWeight's authors, which favors stale ones.
        slope: slope of the hinge rule, > 0.
        grace: largest staleness that the hinge rule does not discount, in server steps, >= 0.

    Raises:
        ConfigurationError: if `rule` is unknown, or if a number is out of range.

    Example:
        Reports from versions 8, 5 and 0 in the step from version 8:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(ByStaleness(), report([[0.0]] * 3, version=[8, 5, 0]), version=8)
        [1.0, 0.5, 0.3333]

    References: Xie et al., "Asynchronous federated optimization", OPT 2020, section 5.2; Nguyen et al., "Federated
    learning with buffered asynchronous aggregation", AISTATS 2022, section 5.
    """

    reads = "staleness"
    participation = "own"

    rule: Rule = "polynomial"
    exponent: NotNegative = 0.5
    base: Positive = 0.5
    slope: Positive = 10.0
    grace: Whole = 4

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return s of each report."""
        return torch.from_numpy(self.of(version - report.version))

    def of(self, staleness: np.ndarray) -> np.ndarray:
        """Return s of an array of staleness, float64 of the same shape."""
        tau = staleness.astype(np.float64)
        if self.rule == "polynomial":
            return (1.0 + tau) ** -self.exponent
        if self.rule == "exponential":
            return np.exp(np.minimum(tau * math.log(self.base), _LARGEST))
        if self.rule == "hinge":
            return 1.0 / (self.slope * np.maximum(tau - self.grace, 0.0) + 1.0)
        return np.ones_like(tau)
