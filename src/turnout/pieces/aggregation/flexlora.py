"""Average products of factors, and truncate the average to the adapter's rank (FlexLoRA)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged
from turnout.pieces.base import Weights


@dataclass(frozen=True)
class FlexLora(LowRank, name="flexlora"):
    """Average the products, and take the factors of the average from its singular value decomposition.

    For an adapter of rank r (for weights w that sum to 1)::

        U S V' = sum_i w_i B_i A_i        B <- U_r S_r        A <- V_r'

    which is exact where the average has rank r or less, and the nearest matrix of rank r otherwise. A client of a smaller
    rank q takes the first q columns of B and rows of A, which is the nearest matrix of rank q.

    Example:
        The average of the products 1 and 9 is 5, which the factors make up:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> FlexLora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[5.]]), down=tensor([[1.]]), product=None)

    Reference: Bai et al., "Federated fine-tuning of large language models under heterogeneous tasks and client resources",
    NeurIPS 2024 (arXiv 2402.11505).
    """

    new_factors = True

    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return the factors of the average product."""
        return Merged(*truncated(*factors.stacked(weights), factors.before_down.shape[0]))


def truncated(up: torch.Tensor, down: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``U S`` ``[m, r]`` and ``V'`` ``[r, k]`` of the r largest singular values of ``up @ down``.

    Signs are such that the largest entry of each row of ``V'`` is positive. What is beyond ``min(m, k)`` is zero.

    Args:
        up: ``[m, q]``.
        down: ``[q, k]``.
        rank: r.
    """
    if not (up.isfinite().all() and down.isfinite().all()):  # of updates that overflow, which the server step drops
        return up.new_full((len(up), rank), torch.nan), down.new_full((rank, down.shape[1]), torch.nan)
    if up.shape[1] < min(up.shape[0], down.shape[1]):  # the decomposition of a [q, q] matrix
        (left, middle), (right, other) = torch.linalg.qr(up), torch.linalg.qr(down.T)
        u, s, v = torch.linalg.svd(middle @ other.T)
        u, v = left @ u, v @ right.T
    else:
        u, s, v = torch.linalg.svd(up @ down, full_matrices=False)
    u, s, v = u[:, :rank], s[:rank], v[:rank]
    signs = v.gather(1, v.abs().argmax(dim=1, keepdim=True)).sign()
    missing = rank - len(s)
    return (
        torch.nn.functional.pad(u * s * signs[:, 0], (0, missing)),
        torch.nn.functional.pad(v * signs, (0, 0, 0, missing)),
    )
