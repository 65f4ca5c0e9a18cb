"""The step of FedYogi."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.ranges import Decay
from turnout.pieces.server_optimizer.adaptive import Adaptive


@dataclass(frozen=True)
class ServerYogi(Adaptive, name="yogi"):
    """Take a step of Yogi along the aggregated update (FedYogi, Algorithm 2).

    The step is that of `Adaptive`: ``x <- x + eta m / (sqrt(v) + tau)`` with ``m <- beta1 m + (1 - beta1) u`` and
    ``v <- v - (1 - beta2) u^2 sign(v - u^2)``, where u is the direction, i.e. the aggregated update. m begins at 0, and
    v at tau^2.

    v falls by at most ``(1 - beta2) u^2`` in a step. So it falls more slowly than with `ServerAdam`, where it falls by
    a share of itself, if directions are small for a while.

    Args:
        lr: step size of the server (eta), > 0, or a `Schedule` of it by round.
        beta1: decay of m, in [0, 1).
        tau: degree of adaptivity, > 0; see `Adaptive`.
        beta2: decay of v, in [0, 1). Larger values change v more slowly.

    Raises:
        ConfigurationError: if a number is out of range.

    Example:
        >>> from turnout.base.trial import step
        >>> step(ServerYogi(lr=0.1), [1.0], [1.0])
        [[0.099], [0.2324]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    beta2: Decay = 0.99

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``v - (1 - beta2) u^2 sign(v - u^2)``."""
        return v.addcmul(square, torch.sign(v - square), value=self.beta2 - 1.0)
