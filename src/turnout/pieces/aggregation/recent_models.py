"""Average the client models of the last steps (FedFa)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Aggregation, Slots, Weights, WithState
from turnout.core.ranges import Count
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.requirements import needs_whole_step


@dataclass(frozen=True)
class RecentModels(Aggregation, name="recent_models"):
    """Average the client models of the last `window` steps (FedFa).

    x is the present model, x_b the trained model of report b, which is the version it was trained from plus the update
    Delta_b, and w_b its weight. Each step adds a model m, and the mean is over those of the last K = `window` steps::

        m = x + sum_b w_b (x_b - x)
        x <- (1/K) sum_{k=1}^K m_k

    If every report is a step of its own (``Buffered(buffer_size=1)``), as in the paper, m is the model of that client;
    otherwise it is the weighted mean of the reports' models. The model does not change before there are K. With a
    window of 1 the rule equals `WeightedModels`.

    Args:
        window: number of models in the mean (K), >= 1.

    State: ``window [K, P]``, the models with the oldest first, and ``filled []``, int64, the number of models in it.

    Raises:
        ConfigurationError: if a window is below 1, or a server step is other than ``x + u``.

    Example:
        >>> RecentModels(window=8).window
        8

    Reference: Xu et al., "FedFa: a fully asynchronous training paradigm for federated learning", IJCAI 2024 (arXiv
    2404.11015).
    """

    client_rows = ()

    reads = frozenset({"model", "offset"})
    only_sums = True

    window: Count = 5

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for another server step, after which the model is not the mean."""
        needs_whole_step(algorithm, "RecentModels")

    def init(self, federation: Federation) -> State:
        """Return an empty window."""
        shape, device = (self.window, federation.num_params), federation.device
        return {
            "window": torch.zeros(shape, dtype=federation.dtype, device=device),
            "filled": torch.zeros((), dtype=torch.int64, device=device),
        }

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]`` to the mean of the window; zero until the window is full."""
        assert report.model is not None
        arrived = report.updates.weighted_sum(weights) + report.model
        if report.model_offset is not None:
            arrived += Updates.of(report.model_offset).weighted_sum(weights)
        window = torch.cat([state["window"][1:], arrived.to(state["window"].dtype)[None]])
        filled = (state["filled"] + 1).clamp(max=self.window)
        direction = window.mean(dim=0, dtype=torch.float64) - report.model
        direction = direction.where(filled == self.window, 0.0)
        # The server step rejects a model that overflows; in the window it would invalidate the next K steps.
        usable = window[-1].isfinite().all()
        after = {"window": window.where(usable, state["window"]), "filled": filled.where(usable, state["filled"])}
        return direction.to(report.delta.dtype), after
