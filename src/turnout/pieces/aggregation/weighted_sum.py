"""Sum the weighted updates."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.base import Aggregation, Weights, WithState
from turnout.core.types import Federation, Report, State


@dataclass(frozen=True)
class WeightedSum(Aggregation, name="weighted_sum"):
    """Sum the weighted updates, the aggregation of FedAvg and of other methods that differ only in their weights.

    Delta_b is the update of report b, ``[P]``, and w_b its weight::

        u = sum_b w_b Delta_b

    Example:
        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(WeightedSum(), report([[1.0], [3.0]]))
        [[2.0]]
    """

    only_sums = True

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``."""
        return report.updates.weighted_sum(weights, report.delta.dtype), state
