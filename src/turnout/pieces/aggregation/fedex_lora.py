"""Average factors, and add the residual of their product to the frozen weights (FedEx-LoRA)."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.pieces.aggregation.low_rank import Factors, LowRank, Merged
from turnout.pieces.base import Weights


@dataclass(frozen=True)
class FedexLora(LowRank, name="fedex_lora"):
    """Average the factors, and add to the frozen weights by how much their product differs from the average product.

    Of an adapter ``W + R + s B A``, where R is zero at first (for weights w that sum to 1)::

        B <- sum_i w_i B_i        A <- sum_i w_i A_i        R <- R + s (sum_i w_i B_i A_i - B A)

    so that ``R + s B A`` is exactly the weighted mean of the clients' ``R + s B_i A_i``. Clients send factors, as in FedIT,
    and receive R beside them: m k numbers a layer. The paper sends what is new of R as factors of rank (n + 1) r, which
    suffices where every client takes part in every round; absent ones lack earlier residuals, so R is sent whole here.

    Example:
        The factors 1 and 3 average to 2, and their products to 5, which the layer gets by a residual:

        >>> import torch
        >>> factors, one = torch.tensor([[[1.0]], [[3.0]]]), torch.ones(1, 1)
        >>> both = Factors(factors, factors, one, one, ranks=torch.tensor([1, 1]), key=1)
        >>> FedexLora().merge(torch.tensor([0.5, 0.5]), both)
        Merged(up=tensor([[2.]]), down=tensor([[2.]]), product=tensor([[5.]]))

    Reference: Singhal, Ponkshe and Vepakomma, "FedEx-LoRA: exact aggregation for federated and efficient fine-tuning of large
    language models", ACL 2025 (arXiv 2410.09432).
    """

    moves_base = True

    def merge(self, weights: Weights, factors: Factors) -> Merged:
        """Return the means of the factors, and the mean of the products."""
        return Merged(*factors.mean(weights), factors.product(weights))
