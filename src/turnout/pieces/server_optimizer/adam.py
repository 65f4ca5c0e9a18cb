"""FedAdam's step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import decay
from turnout.pieces.server_optimizer.adaptive import Adaptive


@dataclass(frozen=True)
class ServerAdam(Adaptive, name="adam"):
    """Step as FedAdam does: `Adaptive`, with ``v <- beta2 v + (1 - beta2) u^2``.

    Args:
        beta2: how much of v stays from one step to the next, in [0, 1).

    Example:
        >>> from turnout.pieces.base.trial import step
        >>> step(ServerAdam(lr=0.1), [1.0], [1.0])
        [[0.099], [0.2327]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        decay("beta2", self.beta2)

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``beta2 v + (1 - beta2) u^2``."""
        return torch.lerp(square, v, self.beta2)
