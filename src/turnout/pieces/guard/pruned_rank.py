"""Prune the rank of each client's adapters during training (HetLoRA)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from turnout.base import MemoryShapes
from turnout.core.adapter import Adapter
from turnout.core.device import to_device
from turnout.core.ranges import Count, Probability
from turnout.core.types import Report, State, Task
from turnout.engine.cohort import Clients
from turnout.pieces.guard.truncated_rank import TruncatedRank, truncated


@dataclass(frozen=True)
class PrunedRank(TruncatedRank, name="pruned_rank"):
    """Truncate each client's adapters to a rank that is pruned when their tails shrink (HetLoRA, self-pruning).

    Each adapter is a low-rank matrix ``B A``. For a client of rank r, the tail is the columns of B and the rows of A
    from ``t = floor(decay r)`` on. After the local steps, with sums over the adapters of the model::

        r <- t   if  sum |B'_tail| |A'_tail| < sum |B_tail| |A_tail|

    B and A are the received factors, B' and A' the trained ones, and norms are Frobenius norms. The client sends B' and
    A', cut to the new rank, and starts its next round with this rank. `TailPenalty` decreases tails during training.

    Client memory: ``pruned_rank []``, the present rank, int64; 0 before the client has sent anything.

    Args:
        ranks: initial ranks, as in `TruncatedRank`.
        decay: factor gamma from a rank to the pruned one, in [0, 1]; 1 disables pruning.
        least: smallest rank after pruning, >= 1.

    Raises:
        ConfigurationError: if a number is out of range, or as for `TruncatedRank`.

    Example:
        >>> import turnout as to
        >>> to.hetlora(ranks=(4, 8), penalty=0.01).guard
        (PrunedRank(ranks=(4, 8), decay=0.99, least=1),)

    Reference: Cho et al., "Heterogeneous LoRA for federated fine-tuning of on-device foundation models", EMNLP 2024
    (arXiv 2401.06432).
    """

    decay: Probability = 0.99
    least: Count = 1

    def memory(self, num_params: int, dtype: torch.dtype, shapes: tuple[tuple[int, ...], ...] = ()) -> MemoryShapes:
        """Return the shape of the present rank."""
        return {"pruned_rank": ((), torch.int64)}

    def of(self, memory: State, clients: Clients) -> torch.Tensor:
        """Return the present rank of each client, int64 ``[B]``."""
        pruned = memory["pruned_rank"]
        return pruned.where(pruned > 0, super().of(memory, clients).to(pruned.device))

    def receive(self, task: Task, memory: State, clients: Clients) -> Task:
        """Return the task with adapters of the clients' ranks, and with the start and the end of their tails."""
        task, ranks = super().receive(task, memory, clients), self.of(memory, clients)
        # A client of a rank <= `least` has an empty tail, which is neither penalized nor pruned.
        tail = {"tail": self._shorter(ranks), "rank": ranks}
        return replace(
            task, own=task.own | {name: to_device(value, task.params.device) for name, value in tail.items()}
        )

    def _shorter(self, ranks: torch.Tensor) -> torch.Tensor:
        """Return the ranks after pruning, int64 ``[B]``."""
        return (self.decay * ranks.double()).floor().to(torch.int64).clamp(min=self.least).minimum(ranks)

    def apply(self, report: Report, task: Task, memory: State, clients: Clients) -> Report:
        """Return the report with the new rank, and with zeros beyond it."""
        if not report.delta.shape[1]:  # a report of measurements alone
            return report
        adapters, tail, ranks = clients.objective.network.adapters, task.own["tail"], task.own["rank"]
        delta = report.updates.gathered()
        before, after = (_norms(adapters, rows, tail, ranks) for rows in (task.params, task.params + delta))
        ranks = tail.where(after < before, ranks)
        return replace(report, delta=truncated(adapters, delta, ranks), seen=report.seen | {"rank": ranks})

    def settle(self, memory: State, sent: Report, good: torch.Tensor) -> None:
        """Remember the ranks of reports that the server does not drop."""
        if "rank" in sent.seen:
            ranks = to_device(sent.seen["rank"], memory["pruned_rank"].device)
            memory["pruned_rank"] = ranks.where(good[:, 0].to(ranks.device), memory["pruned_rank"])


def _norms(adapters: tuple[Adapter, ...], rows: torch.Tensor, begin: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
    """Return ``sum |B_tail| |A_tail|`` over adapters, float64 ``[B]``."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for adapter in adapters:
        up, down = (part.flatten(1).double().norm(dim=1) for part in adapter.between(rows, begin, end))
        total += up * down
    return total
