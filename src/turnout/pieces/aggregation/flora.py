"""Merge the stacked adapters of clients into the frozen weights in every round (FLoRA)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from turnout.base import Weights
from turnout.core.random import fold, uniform
from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged


@dataclass(frozen=True)
class Flora(LowRank, name="flora"):
    """Merge the stacked adapters of a round into the frozen weights, and begin the next round with new ones (FLoRA).

    A layer has the weights ``W + R + s B A``: W is frozen, ``[m, k]``, B ``[m, r]`` and A ``[r, k]`` are the factors of
    its adapter, s is the scaling, and R is the sum of merged adapters, zero at first. For client weights w_i that sum
    to 1::

        R <- R + s sum_i w_i B_i A_i
        B <- 0

    and A is drawn anew, uniform on ``(-1/sqrt(k), 1/sqrt(k))`` as in `peft`, as a function of (seed, version). The sum
    is the product of the stacked factors ``[w_1 B_1, w_2 B_2, ...]`` and ``[A_1; A_2; ...]``, which may have different
    ranks. The authors' code multiplies A by the weights and not B, which has the same product.

    The paper sends the stack, of rank ``sum_i r_i``, to all clients in every round. Absent clients lack earlier ones,
    so R is sent whole here, m k numbers for each layer.

    Example:
        The products 1 and 9 have the mean 5, which is merged into the layer, and B begins at zero:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> Flora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[0.]]), down=tensor([[-0.3237]], dtype=torch.float64), product=tensor([[5.]]))

    Reference: Wang et al., "FLoRA: federated fine-tuning large language models with heterogeneous low-rank
    adaptations", NeurIPS 2024 (arXiv 2409.05976).
    """

    reads = frozenset({"model", "base"})
    new_factors = True

    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return new factors, whose product is zero, and the weighted sum of the products."""
        down = factors.before_down
        draws = uniform(fold(factors.key, torch.arange(down.numel(), device=down.device)))
        fresh = (2.0 * draws - 1.0).view_as(down) / math.sqrt(down.shape[1])
        return Merged(torch.zeros_like(factors.before_up), fresh, factors.product(weights))
