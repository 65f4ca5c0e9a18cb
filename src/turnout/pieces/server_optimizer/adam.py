"""The step of FedAdam."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.ranges import Decay
from turnout.pieces.server_optimizer.adaptive import Adaptive


@dataclass(frozen=True)
class ServerAdam(Adaptive, name="adam"):
    """Take a step of Adam along the aggregated update (FedAdam, Algorithm 2).

    The step is that of `Adaptive`: ``x <- x + eta m / (sqrt(v) + tau)`` with ``m <- beta1 m + (1 - beta1) u`` and
    ``v <- beta2 v + (1 - beta2) u^2``, where u is the direction, i.e. the aggregated update. m begins at 0, and v at
    tau^2. There is no bias correction.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of m, in [0, 1).
        tau: degree of adaptivity, > 0; see `Adaptive`.
        beta2: decay of v, in [0, 1). Larger values average over more rounds.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerAdam(lr=0.1), [1.0], [1.0])
        [[0.099], [0.2327]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    beta2: Decay = 0.99

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``beta2 v + (1 - beta2) u^2``."""
        return torch.lerp(square, v, self.beta2)
