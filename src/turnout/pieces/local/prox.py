"""The proximal term of FedProx, which keeps local models near the received model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Correction
from turnout.core.ranges import NotNegative


@dataclass(frozen=True)
class Prox(Correction, name="prox"):
    """Add the proximal term of FedProx to every local gradient (equation 2).

    Client k minimizes ``F_k(w) + mu/2 ||w - w^t||^2``, where F_k is its local loss and w^t is the received model, so a
    local step descends ``g + mu (w - w^t)`` with the minibatch gradient g. Use it to limit client drift when data are
    heterogeneous or clients do unequal amounts of work.

    Args:
        mu: factor of the term, >= 0; 0 changes nothing.

    Raises:
        ConfigurationError: if `mu` is out of range.

    Example:
        >>> Prox(mu=0.5).correct(torch.tensor([1.0]), params=torch.tensor([3.0]), start=torch.tensor([1.0]))
        tensor([2.])

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """

    mu: NotNegative = 0.01

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient plus ``mu (params - start)``."""
        return gradient + self.mu * (params - start)
