"""Average the models of clients, and not their updates (FedAsync, FedFa, FedAWE)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Aggregation, Slots, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Count, Positive
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.aggregation.requirements import needs_single_draws, needs_whole_step


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


@dataclass(frozen=True)
class KeptModels(Aggregation, name="kept_models"):
    """Let each client continue from the model of its last participation, and average the clients' models (FedAWE).

    x_b is the model from which client b trains: the initial model at first, then the model x after the last round in
    which it participated. For the B participants of a round, with updates Delta_b and weights w_b::

        x <- (1/B) sum_b x_b + sum_b w_b Delta_b

    x is the model that is evaluated. If all clients participate in every round and `max_norm` is None, the rule equals
    `WeightedSum`. In a simulation, the server stores each version from which a client may continue, at most N models;
    between machines the clients would store them.

    Args:
        max_norm: maximum Euclidean norm of ``sum_b w_b Delta_b``, > 0; a longer sum is scaled down to it. None is no
            limit, as in the paper; the authors' code has 0.5 times the global step size.

    Raises:
        ConfigurationError: if the norm is not > 0, or if clients measure losses or gradients, correct their steps by
            the server's mean of client memory, or are drawn several times in a round.

    Example:
        The mean of the updates is 2, which is scaled down to 1:

        >>> from turnout.base.trial import aggregate, report
        >>> aggregate(KeptModels(max_norm=1.0), report([[1.0], [3.0]]))
        [[1.0]]

    Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client
    unavailability", NeurIPS 2024.
    """

    only_sums = True
    reads = frozenset({"offset", "kept"})

    needs_rounds = "{pace} sends clients the present model, and with {piece} they continue from the one that they kept"

    needs_simulation = "clients continue from their stored models, but a task contains the current model"

    max_norm: Positive | None = None

    def fits(self, algorithm: Slots) -> None:
        """Raise an error for pieces that require one model for the whole cohort."""
        if algorithm.measurements or algorithm.selection.measurements:
            raise ConfigurationError(
                "with KeptModels every client continues from a model of its own, and losses and gradients at different "
                "models are not comparable: leave the measurements out"
            )
        if algorithm.keeps:
            raise ConfigurationError(
                f"clients correct their steps by the server's mean of their memory ({', '.join(algorithm.keeps)}), which "
                "requires one model for all, and with KeptModels every client continues from its own: leave the "
                "correction out"
            )
        needs_single_draws(algorithm, "and a client keeps only one model")

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``."""
        direction = report.updates.weighted_sum(weights)
        if self.max_norm is not None:
            direction *= (self.max_norm / direction.norm().clamp(min=self.max_norm)).to(direction.dtype)
        if report.model_offset is not None:
            even = torch.full_like(weights, 1.0 / len(report))
            direction += Updates.of(report.model_offset).weighted_sum(even)
        return direction.to(report.delta.dtype), state
