"""FedYogi's step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import decay
from turnout.pieces.server_optimizer.adaptive import Adaptive


@dataclass(frozen=True)
class ServerYogi(Adaptive, name="yogi"):
    """Step as FedYogi does: `Adaptive`, with ``v <- v - (1 - beta2) u^2 sign(v - u^2)``.

    By `ServerAdam` v falls by a share of itself, here by no more than u^2: less where directions are small for a while.

    Args:
        beta2: how much of v stays from one step to the next, in [0, 1).

    Example:
        >>> from turnout.pieces.base.trial import step
        >>> step(ServerYogi(lr=0.1), [1.0], [1.0])
        [[0.099], [0.2324]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        decay("beta2", self.beta2)

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``v - (1 - beta2) u^2 sign(v - u^2)``."""
        return v.addcmul(square, torch.sign(v - square), value=self.beta2 - 1.0)
