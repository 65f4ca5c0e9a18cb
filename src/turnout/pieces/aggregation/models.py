"""The weighted mean of the clients' models, rather than of their updates."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.base import Aggregation, Weights, WithState


@dataclass(frozen=True)
class WeightedModels(Aggregation, name="weighted_models"):
    """``u = sum_b w_b (x_b - x)``: towards the models of the clients, ``x_b = (what b started from) + Delta_b``.

    With a server step of alpha and one report this is FedAsync's ``x <- (1 - alpha w) x + alpha w x_b``. Where all started
    from the present model it is `WeightedSum`; a stale report also pulls back to the version it was trained from.

    Example:
        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(WeightedModels(), report([[1.0], [3.0]]))
        [[2.0]]

    Reference: Xie et al., "Asynchronous federated optimization", OPT 2020, Algorithm 1.
    """

    of_models = True
    only_sums = True

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``."""
        direction = report.updates.weighted_sum(weights)
        if report.model_offset is not None:
            direction += Updates.of(report.model_offset).weighted_sum(weights)
        return direction.to(report.delta.dtype), state
