"""FedAdagrad's step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.schedule import Schedule
from turnout.pieces.server_optimizer.adaptive import Adaptive


@dataclass(frozen=True)
class ServerAdagrad(Adaptive, name="adagrad"):
    """Step as FedAdagrad does: `Adaptive`, with ``v <- v + u^2`` and beta1 = 0, as in the experiments.

    Example:
        >>> from turnout.pieces.base.trial import step
        >>> step(ServerAdagrad(lr=0.1), [1.0], [1.0])
        [[0.0999], [0.1706]]

    Reference: Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2.
    """

    lr: float | Schedule = 0.1
    beta1: float = 0.0

    def second_moment(self, v: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        """Return ``v + u^2``."""
        return v + square
