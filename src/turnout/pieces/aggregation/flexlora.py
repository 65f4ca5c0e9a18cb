"""Average the products of adapters' factors, and truncate the average to the rank of the adapter (FlexLoRA)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Weights
from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged


@dataclass(frozen=True)
class FlexLora(LowRank, name="flexlora"):
    """Average the products of adapters' factors, and factorize the average by a truncated SVD (FlexLoRA).

    A layer has the weights ``W + s B A``: W is frozen, ``[m, k]``, B ``[m, r]`` and A ``[r, k]`` are the factors of its
    adapter of rank r, and s is the scaling. For client weights w_i that sum to 1, with the r largest singular values of
    the average::

        U S V' = sum_i w_i B_i A_i
        B <- U_r S_r
        A <- V_r'

    The result is exact if the average has rank r or less, and the nearest matrix of rank r otherwise. A client of a
    smaller rank q receives the first q columns of B and rows of A, whose product is the nearest matrix of rank q.

    Example:
        The products 1 and 9 have the mean 5, which is the product of the new factors:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> FlexLora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[5.]]), down=tensor([[1.]]), product=None)

    Reference: Bai et al., "Federated fine-tuning of large language models under heterogeneous tasks and client
    resources", NeurIPS 2024 (arXiv 2402.11505).
    """

    new_factors = True

    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return the factors of the average product."""
        return Merged(*truncated(*factors.stacked(weights), factors.before_down.shape[0]))


def truncated(up: torch.Tensor, down: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``U S`` ``[m, r]`` and ``V'`` ``[r, k]`` for the r largest singular values of ``up @ down``.

    The largest entry of each row of V' is positive. Columns and rows beyond ``min(m, k)`` are zero. If a factor is not
    finite, the result is NaN.

    Args:
        up: the left factor, ``[m, q]``.
        down: the right factor, ``[q, k]``.
        rank: the number of singular values, r.
    """
    if not (up.isfinite().all() and down.isfinite().all()):  # updates that overflow, which the server step drops
        return up.new_full((len(up), rank), torch.nan), down.new_full((rank, down.shape[1]), torch.nan)
    if up.shape[1] < min(up.shape[0], down.shape[1]):  # decompose a [q, q] matrix only
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
