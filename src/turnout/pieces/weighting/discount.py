"""Discount reports by their staleness (FedBuff, FedAsync, and exponentials for comparison)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from turnout.core.checks import count, known_name, not_negative, positive
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Weighting, Weights

Rule = Literal["constant", "polynomial", "exponential", "hinge"]
RULES: tuple[Rule, ...] = ("constant", "polynomial", "exponential", "hinge")

_LARGEST = 600.0  # exponent of e that float64 can still sum over any buffer


@dataclass(frozen=True)
class ByStaleness(Weighting, name="by_staleness"):
    """``w_b <- w_b s(tau_b)``, tau = server steps since the version that the report was trained from::

        constant     s = 1
        polynomial   s = (1 + tau)^-exponent                                  FedBuff with 1/2, FedAsync with a
        exponential  s = base^tau                                             above 1, the stale count more
        hinge        s = 1 where tau <= grace, else 1 / (slope (tau - grace) + 1)      FedAsync

    Args:
        rule: which of them.
        exponent: of the polynomial, >= 0.
        base: of the exponential, > 0; 0.5 favours the fresh, 2 is the "reverse exponential" of FedStaleWeight's authors.
        slope: of the hinge, > 0.
        grace: steps within which the hinge discounts nothing, >= 0.

    Raises:
        ConfigurationError: for a rule that is not known, or numbers out of range.

    Example:
        Reports of versions 8, 5 and 0 in the step from version 8:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(ByStaleness(), report([[0.0]] * 3, version=[8, 5, 0]), version=8)
        [1.0, 0.5, 0.3333]

    References: Xie et al., "Asynchronous federated optimization", OPT 2020, section 5.2; Nguyen et al., "Federated learning
    with buffered asynchronous aggregation", AISTATS 2022, section 5.
    """

    reads = "timing"
    participation = "own"
    of_staleness = True

    rule: Rule = "polynomial"
    exponent: float = 0.5
    base: float = 0.5
    slope: float = 10.0
    grace: int = 4

    def __post_init__(self) -> None:
        known_name("rule of staleness", self.rule, RULES)
        not_negative("exponent", self.exponent)
        positive("base", self.base)
        positive("slope", self.slope)
        count("grace", self.grace, least=0)

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return s of each report."""
        return torch.from_numpy(self.of(version - report.version))

    def of(self, staleness: np.ndarray) -> np.ndarray:
        """Return s of each staleness, float64 of the same shape."""
        tau = staleness.astype(np.float64)
        if self.rule == "polynomial":
            return (1.0 + tau) ** -self.exponent
        if self.rule == "exponential":
            return np.exp(np.minimum(tau * math.log(self.base), _LARGEST))
        if self.rule == "hinge":
            return 1.0 / (self.slope * np.maximum(tau - self.grace, 0.0) + 1.0)
        return np.ones_like(tau)
