"""The weighted sum of updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Aggregation, Weights


@dataclass(frozen=True)
class WeightedSum(Aggregation, name="weighted_sum"):
    """``u = sum_b w_b Delta_b``; all that is special about a method is in its weights."""

    only_sums: ClassVar[bool] = True

    def apply(
        self, weights: Weights, report: Report, state: State, federation: Federation
    ) -> tuple[torch.Tensor, State]:
        """Return the direction ``[P]``."""
        del federation
        return report.updates.weighted_sum(weights).to(report.delta.dtype), state
