"""Let clients continue from their own last models (implicit gossiping of FedAWE)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Aggregation, Slots, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Positive
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates


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
        if algorithm.selection.repeats:
            raise ConfigurationError(
                f"{type(algorithm.selection).__name__} draws a client twice, and a client keeps only one model: "
                "write Uniform(10)"
            )

    def apply(self, weights: Weights, report: Report, state: State, federation: Federation) -> WithState:
        """Return the direction ``[P]``."""
        direction = report.updates.weighted_sum(weights)
        if self.max_norm is not None:
            direction *= (self.max_norm / direction.norm().clamp(min=self.max_norm)).to(direction.dtype)
        if report.model_offset is not None:
            even = torch.full_like(weights, 1.0 / len(report))
            direction += Updates.of(report.model_offset).weighted_sum(even)
        return direction.to(report.delta.dtype), state
