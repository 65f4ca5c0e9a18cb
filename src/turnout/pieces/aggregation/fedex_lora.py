"""Average the factors of adapters, and correct the frozen weights by the residual of their product (FedEx-LoRA)."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.base import Weights
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
