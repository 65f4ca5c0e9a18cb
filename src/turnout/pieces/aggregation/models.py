"""Average the models of clients, and not their updates."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.base import Aggregation, Weights, WithState
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates


@dataclass(frozen=True)
class WeightedModels(Aggregation, name="weighted_models"):
    """Move the model toward the weighted mean of the clients' models (FedAsync, Algorithm 1).

    x is the present model, x_b the trained model of report b, which is the version it was trained from plus the update
    Delta_b, and w_b its weight::

        u = sum_b w_b (x_b - x)

    With one report in a step and a server step size alpha, this is FedAsync's
    ``x <- (1 - alpha w_b) x + alpha w_b x_b``. If all reports were trained from the present model, it equals
    `WeightedSum`. A stale report also moves the model back toward the version it was trained from.

    Example:
        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(WeightedModels(), report([[1.0], [3.0]]))
        [[2.0]]

    Reference: Xie et al., "Asynchronous federated optimization", OPT 2020, Algorithm 1.
    """

    reads = frozenset({"offset"})
    only_sums = True

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``."""
        direction = report.updates.weighted_sum(weights)
        if report.model_offset is not None:
            direction += Updates.of(report.model_offset).weighted_sum(weights)
        return direction.to(report.delta.dtype), state
