"""Aggregations of low-rank adapters: FedEx-LoRA, FLoRA, FlexLoRA, HetLoRA and raFLoRA."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from turnout.base import Weights
from turnout.core.random import fold, uniform
from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged


@dataclass(frozen=True)
class FedexLora(LowRank, name="fedex_lora"):
    """Average the factors of adapters, and add the residual of their product to the frozen weights (FedEx-LoRA).

    A layer has the weights ``W + R + s B A``: W is frozen, ``[m, k]``, B ``[m, r]`` and A ``[r, k]`` are the factors of
    its adapter, s is the scaling, and R is a residual, zero at first. For client weights w_i that sum to 1::

        B <- sum_i w_i B_i
        A <- sum_i w_i A_i
        R <- R + s (sum_i w_i B_i A_i - B A)

    with the new B and A in the last line, so that ``R + s B A`` is exactly the weighted mean of the clients'
    ``R + s B_i A_i``. The mean of the factors alone (FedIT) is not, because the product of means is not the mean of
    products.

    Clients send factors, as in FedIT, and receive R beside them, m k numbers for each layer. The paper sends the change
    of R as factors of rank (n + 1) r, for n clients, which suffices if every client participates in every round. Absent
    clients lack earlier residuals, so R is sent whole here.

    Example:
        The factors 1 and 3 have the mean 2, and their products 1 and 9 the mean 5, which the residual restores:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> FedexLora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[2.]]), down=tensor([[2.]]), product=tensor([[5.]]))

    Reference: Singhal, Ponkshe and Vepakomma, "FedEx-LoRA: exact aggregation for federated and efficient fine-tuning of
    large language models", ACL 2025 (arXiv 2410.09432).
    """

    reads = frozenset({"model", "base"})

    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return the means of the factors, and the mean of the products."""
        return Merged(*factors.mean(weights), factors.product(weights))


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
        stacked = factors.stacked(weights[:, None], 1.0 - weights.sum())
        return Merged(*truncated(*stacked, factors.before_down.shape[0]))


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
        return Merged(*truncated(*factors.stacked(weights[:, None] * share * has, rest), rank))
