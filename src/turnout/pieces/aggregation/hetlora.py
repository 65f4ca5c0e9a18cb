"""Average adapters of different ranks by the norms of their products (HetLoRA)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Weights
from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged


@dataclass(frozen=True)
class HetLora(LowRank, name="hetlora"):
    """Average zero-padded factors of different ranks, weighted by the norms of their products (HetLoRA).

    B_i ``[m, r]`` and A_i ``[r, k]`` are the factors of client i's adapter, with zeros beyond its rank, and w_i is its
    weight. For weights that sum to 1 (sparsity-weighted aggregation)::

        v_i = w_i ||B_i A_i||_F / sum_j w_j ||B_j A_j||_F
        B <- sum_i v_i B_i
        A <- sum_i v_i A_i

    with Frobenius norms. The authors have equal w_i. The product of the averages is not the average of the products. If
    all products have the same norm, the rule is that of FedIT. The ranks are those of `TruncatedRank`, or decrease in
    training by `PrunedRank` and `TailPenalty`, the paper's self-pruning.

    Example:
        The products 1 and 9 have the weights 0.1 and 0.9, so that the factors 1 and 3 have the mean 2.8:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> HetLora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[2.8000]]), down=tensor([[2.8000]]), product=None)

    Reference: Cho et al., "Heterogeneous LoRA for federated fine-tuning of on-device foundation models", EMNLP 2024
    (arXiv 2401.06432).
    """

    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return the weighted means of the factors."""
        # ||B A||^2 = <B'B, A A'>, which needs no matrix of the size of a layer.
        squares = (factors.up.mT @ factors.up * (factors.down @ factors.down.mT)).sum(dim=(1, 2))
        sized = weights * squares.clamp(min=0.0).sqrt()
        total = sized.sum()
        weights = torch.where(total != 0, sized * (weights.sum() / total.where(total != 0, 1.0)), weights)
        return Merged(*factors.mean(weights))
