"""Average factors of unequal ranks, padded with zeros, by the norm of their products (HetLoRA)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged
from turnout.pieces.base import Weights


@dataclass(frozen=True)
class HetLora(LowRank, name="hetlora"):
    """Average factors that are padded with zeros to one rank, by weights in proportion to ``|B_i A_i|``.

    For each adapter (sparsity-weighted aggregation; with the weights w beside, which its authors have equal)::

        v_i = w_i |B_i A_i|_F / sum_j w_j |B_j A_j|_F        B <- sum_i v_i B_i        A <- sum_i v_i A_i

    The average is not exact. Where all products are of one size it is FedIT's. Ranks are those of `TruncatedRank`, or fall in
    training with `PrunedRank` and `TailPenalty`, the paper's self-pruning.

    Example:
        A client whose product is 9 times as large counts 9 times as much:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> HetLora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[2.8000]]), down=tensor([[2.8000]]), product=None)

    Reference: Cho et al., "Heterogeneous LoRA for federated fine-tuning of on-device foundation models", EMNLP 2024 (arXiv
    2401.06432).
    """

    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return the means of the factors."""
        # |B A|^2 = <B'B, A A'>, without products of the size of a layer.
        squares = (factors.up.mT @ factors.up * (factors.down @ factors.down.mT)).sum(dim=(1, 2))
        sized = weights * squares.clamp(min=0.0).sqrt()
        total = sized.sum()
        weights = torch.where(total != 0, sized * (weights.sum() / total.where(total != 0, 1.0)), weights)
        return Merged(*factors.mean(weights))
