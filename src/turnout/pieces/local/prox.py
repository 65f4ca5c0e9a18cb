"""Pull local models toward the received one: the proximal term of FedProx, and the dynamic regularizer of FedDyn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from turnout.base import Correction, MemoryShapes
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.ranges import NotNegative, Positive
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients


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


@dataclass(frozen=True)
class DynamicRegularizer(Correction, name="dynamic_regularizer"):
    """Add the dynamic regularizer of FedDyn to every local gradient.

    Client k minimizes ``F_k(y) - <lambda_k, y> + alpha/2 ||y - w^t||^2``, so a local step descends ``g(y) - lambda_k +
    alpha (y - w^t)``, where g(y) is the minibatch gradient, w^t the received model and lambda_k the client's dual
    vector. After the round, a client that took part updates its dual vector from its local model w_k::

        lambda_k <- lambda_k - alpha (w_k - w^t)

    lambda_k starts at zero. It equals the gradient of F_k at w_k if the local problem is solved exactly, so that
    stationary points of the local objectives agree with those of the global one. It moves by the update that was sent,
    so it stays consistent with the server's sum even if a guard changes the update.

    Only the shared parameters are regularized; personal parameters have neither term.

    Client memory: ``dual [P]`` (lambda_k), which never leaves the client.

    Args:
        alpha: strength of the regularizer, > 0; the paper searches {0.1, 0.01, 0.001}.

    Raises:
        ConfigurationError: if `alpha` is not positive.

    Example:
        >>> import turnout as to
        >>> to.feddyn(alpha=0.01).corrections
        (DynamicRegularizer(alpha=0.01),)
        >>> DynamicRegularizer().memory(7, torch.float32)
        {'dual': ((7,), torch.float32)}

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021 (arXiv 2111.04263).
    """

    alpha: Positive = 0.1

    def memory(self, num_params: int, dtype: torch.dtype) -> MemoryShapes:
        """Return the shape of the dual vector."""
        return {"dual": ((num_params,), dtype)}

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the dual vectors of these clients."""
        return _Regularized(lanes.of(to_device(memory["dual"], task.params.device)), self.alpha)

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient with dual vectors of zero; `begin` supplies those of the clients."""
        return gradient + self.alpha * (params - start)

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Update the dual vectors of B clients by the updates that they sent."""
        delta = to_device(sent.updates.gathered(), memory["dual"].device)
        memory["dual"] = memory["dual"] - self.alpha * delta.where(good, 0.0)


@dataclass(frozen=True)
class _Regularized(Correction):
    """`DynamicRegularizer` in one round.

    Args:
        dual: dual vectors lambda_k of the shared parameters, ``[B, P]``.
        alpha: strength of the regularizer.
    """

    dual: torch.Tensor
    alpha: float

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return ``g - lambda_k + alpha (y - w^t)``."""
        num_shared = self.dual.shape[1]
        pull = self.alpha * (params - start)[:, :num_shared] - self.dual[: len(gradient)]
        return gradient + F.pad(pull, (0, gradient.shape[1] - num_shared))
