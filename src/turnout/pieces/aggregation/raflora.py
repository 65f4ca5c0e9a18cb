"""Average products of factors rank by rank, each over the clients that have the rank (raFLoRA)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.pieces.aggregation.flexlora import truncated
from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged
from turnout.pieces.base import Weights


@dataclass(frozen=True)
class RaFlora(LowRank, name="raflora"):
    """Average the products of each part of the ranks over the clients that have it, and decompose the sum as FlexLoRA does.

    With b_ij the column j of B_i, a_ij the row j of A_i and r_i the rank of client i::

        U S V' = sum_j sum_{i: r_i > j} v_ij b_ij a_ij        v_ij = w_i sum_k w_k / sum_{k: r_k > j} w_k

    where FlexLoRA has v_ij = w_i, so that ranks few clients have shrink from round to round (rank collapse). Weighing columns
    one by one is weighing the paper's partitions, in which all columns have the same clients. The weights within a partition
    are our reading of its summary, "weighted by its effective client contributions". A column that no client of the
    round has stays as it is. Of equal ranks it is FlexLoRA.

    Example:
        Where all have the same rank it is the average of the products, 5:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> RaFlora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[5.]]), down=tensor([[1.]]), product=None)

    Reference: Wu, Hu, Min and Wang, "Preventing rank collapse in federated low-rank adaptation with client heterogeneity",
    2026 (arXiv 2602.13486).
    """

    new_factors = True

    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return the factors of the average product."""
        rank = factors.before_down.shape[0]
        has = torch.arange(rank, device=weights.device) < factors.ranks[:, None]
        total, of_column = weights.sum(), (weights[:, None] * has).sum(dim=0)
        share = torch.where(of_column != 0, total / of_column.where(of_column != 0, 1.0), 0.0)
        rest = torch.where(of_column != 0, 1.0 - total, 1.0)
        up = (weights[:, None] * share * has)[:, None, :] * factors.up
        stacked = torch.cat([up.movedim(0, 1).flatten(1), rest * factors.before_up], dim=1)
        return Merged(*truncated(stacked, torch.cat([factors.down.flatten(0, 1), factors.before_down]), rank))
