"""FedExP's step, which is longer the more updates disagree."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError, positive
from turnout.core.types import Report, State
from turnout.pieces.aggregation.weighted_sum import WeightedSum
from turnout.pieces.base import Server, Slots, Weights, WithState


@dataclass(frozen=True)
class FedExP(Server, name="fedexp"):
    """Step further the more updates disagree, as FedExP does: ``x <- x + eta u``.

    ``eta = max(1, mean_b ||Delta_b||^2 / (2 (||mean_b Delta_b||^2 + epsilon)))``.

    Both means have the weights that u has, divided by the sum of their absolute values, so that ``u = W mean_b Delta_b``
    keeps the size W that its rule gives it; an update that is subtracted has a negative weight, which changes neither
    length. With equal weights that sum to 1 this is the paper's eta.

    The authors' code multiplies epsilon by the number of participants and lets it fall from round to round, as it does
    with local step sizes, and it evaluates the mean of the last two models; here epsilon is as in the paper, and the model
    is evaluated as it is.

    Args:
        epsilon: keeps eta in bounds where the mean of the updates is nearly zero; of the order of ``||Delta||^2``. The
            authors have 0.001 for CIFAR and 0.1 for EMNIST.

    Raises:
        ConfigurationError: for an epsilon that is not positive, or an aggregation other than the weighted sum.

    Example:
        ``||Delta||^2`` are 5 and 2, and their mean is 2.8 times ``||mean Delta||^2``, so the step is 1.4 times as long:

        >>> from turnout.pieces.base.trial import report
        >>> even = torch.tensor([0.5, 0.5], dtype=torch.float64)
        >>> one = report([[2.0, 1.0], [-1.0, 1.0]])
        >>> FedExP(epsilon=1e-9).scaled(torch.tensor([0.5, 1.0]), even, one)
        tensor([0.7000, 1.4000])

    Reference: Jhunjhunwala, Wang and Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023.
    """

    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)

    def fits(self, algorithm: Slots) -> None:
        """Refuse directions that are no weighted sum of this round's updates."""
        if not isinstance(algorithm.aggregation, WeightedSum):
            raise ConfigurationError(
                "FedExP's step is the ratio of the mean of ||Delta||^2 to ||mean of Delta||^2 of the same updates, and "
                f"{type(algorithm.aggregation).__name__} has another direction than their mean: leave one out"
            )

    def scaled(self, direction: torch.Tensor, weights: Weights, report: Report) -> torch.Tensor:
        """Return ``eta u``."""
        size = weights.abs()
        total = size.sum()
        spread = size @ report.updates.norms().square() / total
        length = (torch.linalg.vector_norm(direction, dtype=torch.float64) / total).square()
        eta = torch.where(total > 0, (0.5 * spread / (length + self.epsilon)).clamp(min=1.0), 1.0)
        return direction * eta.to(direction.dtype)

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Step along the direction, which is scaled already."""
        return params + direction, state
