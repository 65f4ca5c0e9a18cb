"""Have absent clients keep their model and continue from it (FedAWE's implicit gossiping)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError, positive
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.base import Aggregation, Slots, Weights, WithState


@dataclass(frozen=True)
class KeptModels(Aggregation, name="kept_models"):
    """``x <- (1/B) sum_b x_b + sum_b w_b Delta_b``, and those who took part keep the new x as their x_b.

    Client b trains from x_b, which is the first model until it takes part. The model that is evaluated is x. Where all
    clients take part in every round and `max_norm` is None, it is `WeightedSum`.

    In a simulation the server's side holds each version that some client keeps, at most N models; between machines the
    clients would.

    Attributes:
        max_norm: the largest norm of ``sum_b w_b Delta_b``, which is scaled down to it; None is no limit. The paper has none;
            the authors' code has 0.5 times the global step size.

    Raises:
        ConfigurationError: for a norm that is not > 0, and where clients measure at the present model, correct their steps
            by what the server knows of all, or are drawn several times in a round.

    Example:
        >>> from turnout.pieces.base.trial import aggregate, report
        >>> aggregate(KeptModels(max_norm=1.0), report([[1.0], [3.0]]))
        [[1.0]]

    Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client unavailability",
    NeurIPS 2024.
    """

    of_models = True
    only_sums = True
    continues = True

    needs_rounds = (
        "{pace} gives clients the model of the moment, and {piece} has them go on from the one that they kept"
    )

    needs_simulation = "clients go on from models that they keep, and what a client gets with a task is the present one"

    max_norm: float | None = None

    def __post_init__(self) -> None:
        if self.max_norm is not None:
            positive("max_norm", self.max_norm)

    def fits(self, algorithm: Slots) -> None:
        """Refuse pieces that need one model for a whole cohort."""
        if algorithm.measurements or algorithm.selection.measurements:
            raise ConfigurationError(
                "KeptModels has every client go on from a model of its own, and losses and gradients at different models do "
                "not compare: leave out what is measured"
            )
        if algorithm.keeps:
            raise ConfigurationError(
                f"clients correct their steps by the server's mean of what they keep ({', '.join(algorithm.keeps)}), which "
                "is about one model, and KeptModels has every client go on from one of its own: leave the correction out"
            )
        if algorithm.selection.repeats:
            raise ConfigurationError(
                f"{type(algorithm.selection).__name__} draws a client twice, but of the model that it goes on from "
                "it has one: write Uniform(10)"
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
