"""Average the products of adapters' factors rank by rank, each over the clients that have the rank (raFLoRA)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Weights
from turnout.pieces.aggregation.flexlora import truncated
from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged


@dataclass(frozen=True)
class RaFlora(LowRank, name="raflora"):
    """Average the products of adapters' factors rank by rank over the clients that have the rank, and truncate (raFLoRA).

    b_ij ``[m, 1]`` is column j of the factor B_i of client i, a_ij ``[1, k]`` row j of its factor A_i, w_i its weight,
    and C_j the set of clients whose rank is larger than j, for j from 0 to r - 1. For weights that sum to 1::

        v_ij = w_i / sum_{k in C_j} w_k
        U S V' = sum_j sum_{i in C_j} v_ij b_ij a_ij

    The new factors of rank r are the truncated SVD of that sum, as in FlexLoRA. FlexLoRA has v_ij = w_i, so that the
    parts of the model in ranks that few clients have shrink from round to round (rank collapse). A column that no
    client of the round has does not change. If all ranks are equal, the rule is FlexLoRA.

    The paper weights partitions of the ranks; all columns of a partition have the same clients, so weights of single
    columns are the same. The weights within a partition are our interpretation of the paper's summary, "weighted by its
    effective client contributions".

    Example:
        With equal ranks, the products 1 and 9 have the mean 5:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> RaFlora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[5.]]), down=tensor([[1.]]), product=None)

    Reference: Wu, Hu, Min and Wang, "Preventing rank collapse in federated low-rank adaptation with client
    heterogeneity", 2026 (arXiv 2602.13486).
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
