"""The proximal term that holds a client near the model it received."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import not_negative
from turnout.pieces.base import Correction


@dataclass(frozen=True)
class Prox(Correction, name="prox"):
    """FedProx's local objective: minimise ``F_k(w) + mu/2 ||w - w^t||^2``, that is descend ``g + mu (w - w^t)``.

    Args:
        mu: the factor; 0 changes nothing.

    Example:
        >>> Prox(mu=0.5).correct(torch.tensor([1.0]), params=torch.tensor([3.0]), start=torch.tensor([1.0]))
        tensor([2.])

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        not_negative("mu", self.mu)

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient plus ``mu (params - start)``."""
        return gradient + self.mu * (params - start)
