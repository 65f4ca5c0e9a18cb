"""The step of FedAdagrad."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.schedule import Schedule
from turnout.pieces.server_optimizer.adaptive import Adaptive


@dataclass(frozen=True)
class ServerAdagrad(Adaptive, name="adagrad"):
    """Take a step of Adagrad along the aggregated update (FedAdagrad, Algorithm 2).

    The step is that of `Adaptive`: ``x <- x + eta m / (sqrt(v) + tau)`` with ``m <- beta1 m + (1 - beta1) u`` and
    ``v <- v + u^2``, where u is the direction, i.e. the aggregated update. m begins at 0, and v at tau^2.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of m, in [0, 1). The default 0, no momentum, is that of the paper's experiments.
        tau: degree of adaptivity, > 0; see `Adaptive`.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerAdagrad(lr=0.1), [1.0], [1.0])
        [[0.0999], [0.1706]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    lr: float | Schedule = 0.1
    beta1: float = 0.0

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``v + u^2``."""
        return v + square
