"""Average a sliding window of client models (FedFa)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import count
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.requirements import needs_whole_step
from turnout.pieces.base import Aggregation, Slots, Weights, WithState


@dataclass(frozen=True)
class RecentModels(Aggregation, name="recent_models"):
    """``x <- (1/K) sum_{k=1}^K m_k``, the mean of the models of the last K steps (FedFa).

    ``m = x + sum_b w_b (x_b - x)`` with ``x_b = (what b started from) + Delta_b`` is the model that arrives in a step: that
    of the client where every report is a step of its own (``Buffered(buffer_size=1)``), as in the paper, and the weighted
    mean where there are several. The model stays as it is until there are K. With a window of 1 it is `WeightedModels`.

    State: ``window [K, P]``, the oldest first, and ``filled``, the number of models in it.

    Args:
        window: K.

    Raises:
        ConfigurationError: for a window below 1, and with a server step other than ``x + u``.

    Example:
        >>> RecentModels(window=8).window
        8

    Reference: Xu et al., "FedFa: a fully asynchronous training paradigm for federated learning", IJCAI 2024 (arXiv
    2404.11015).
    """

    replaces_state = True

    of_models = True
    reads_model = True
    only_sums = True

    window: int = 5

    def __post_init__(self) -> None:
        count("window", self.window)

    def fits(self, algorithm: Slots) -> None:
        """Refuse another server step, after which the model would not be the mean."""
        needs_whole_step(algorithm, "RecentModels")

    def init(self, federation: Federation) -> State:
        """Return an empty window."""
        shape, device = (self.window, federation.num_params), federation.device
        return {
            "window": torch.zeros(shape, dtype=federation.dtype, device=device),
            "filled": torch.zeros((), dtype=torch.int64, device=device),
        }

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]`` to the mean of the window; zero until it is full."""
        assert report.model is not None
        arrived = report.updates.weighted_sum(weights) + report.model
        if report.model_offset is not None:
            arrived += Updates.of(report.model_offset).weighted_sum(weights)
        window = torch.cat([state["window"][1:], arrived.to(state["window"].dtype)[None]])
        filled = (state["filled"] + 1).clamp(max=self.window)
        direction = window.mean(dim=0, dtype=torch.float64) - report.model
        direction = direction.where(filled == self.window, 0.0)
        # A model that overflows is not taken by the server step; in the window it would spoil the K steps after that.
        usable = window[-1].isfinite().all()
        after = {"window": window.where(usable, state["window"]), "filled": filled.where(usable, state["filled"])}
        return direction.to(report.delta.dtype), after
