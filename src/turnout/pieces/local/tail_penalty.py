"""The penalty of HetLoRA on the last ranks of low-rank adapters."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Correction, Slots
from turnout.core.adapter import Adapter
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.lanes import Lanes
from turnout.core.ranges import NotNegative
from turnout.core.types import State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.guard.truncated_rank import PrunedRank


@dataclass(frozen=True)
class TailPenalty(Correction, name="tail_penalty"):
    """Penalize the last ranks of each client's low-rank adapters, so that they can be pruned (HetLoRA).

    Client k minimizes ``F_k(w) + penalty sum |B_tail| |A_tail|``, where the sum is over the adapters ``B A`` of the
    model. B_tail and A_tail are the last columns of B and rows of A, which the guard `PrunedRank` may prune, and norms
    are Frobenius norms. Where a norm is zero, as that of B at the beginning, its gradient is taken to be zero.

    Args:
        penalty: factor of the penalty (the paper's lambda), >= 0.

    Raises:
        ConfigurationError: if the number is out of range, or if the algorithm has no `PrunedRank`.

    Example:
        >>> import turnout as to
        >>> to.hetlora(ranks=(8, 4), penalty=0.1).corrections
        (TailPenalty(penalty=0.1),)

    Reference: Cho et al., "Heterogeneous LoRA for federated fine-tuning of on-device foundation models", EMNLP 2024
    (arXiv 2401.06432).
    """

    penalty: NotNegative = 0.01

    def fits(self, algorithm: Slots) -> None:
        """Raise an error if no guard of the algorithm prunes adapters."""
        if not any(isinstance(guard, PrunedRank) for guard in algorithm.guard):
            raise ConfigurationError(
                "TailPenalty penalizes ranks that a guard prunes, and no guard prunes: add guard.PrunedRank((8, 4)) to the "
                "pieces"
            )

    def begin(self, task: Task, memory: State, clients: Clients, lanes: Lanes) -> Correction:
        """Return the correction with the tails of these clients."""
        ends = (to_device(lanes.of(task.own[name]), task.params.device) for name in ("tail", "rank"))
        return _Tails(clients.objective.network.adapters, self.penalty, *ends)


@dataclass(frozen=True)
class _Tails(Correction):
    """`TailPenalty` in one round.

    Args:
        adapters: low-rank adapters of the model.
        penalty: factor of the penalty.
        tail, rank: ranks at which the tail of each client begins and ends, int64 ``[B]``.
    """

    adapters: tuple[Adapter, ...]
    penalty: float
    tail: torch.Tensor
    rank: torch.Tensor

    def correct(self, gradient: torch.Tensor, params: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the gradient plus that of the penalty: ``lambda |A| B / |B|`` for B, ``lambda |B| A / |A|`` for A."""
        result, active = gradient.clone(), len(gradient)
        for adapter in self.adapters:
            up, down = adapter.between(params, self.tail[:active], self.rank[:active])
            of_up, of_down = (part.square().sum(dim=(1, 2), keepdim=True).sqrt() for part in (up, down))
            grad_up, grad_down = adapter.factors(result)
            grad_up.add_(up * (self.penalty * of_down / of_up.where(of_up > 0, 1.0)))
            grad_down.add_(down * (self.penalty * of_up / of_down.where(of_down > 0, 1.0)))
        return result
