"""The step of FedExP, whose size grows with the disagreement of updates."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import ScalesByReports, Server, Slots, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.ranges import Positive
from turnout.core.types import Report, State
from turnout.pieces.aggregation.weighted_sum import WeightedSum


@dataclass(frozen=True)
class FedExP(Server, ScalesByReports, name="fedexp"):
    """Take a step whose size grows with the disagreement of the updates (FedExP).

    ``x <- x + eta u``, where ``eta = max(1, mean_b ||Delta_b||^2 / (2 (||mean_b Delta_b||^2 + epsilon)))``. Here x is
    the model, u is the direction, i.e. the aggregated update, and Delta_b is the update of report b.

    Both means have the weights of u, divided by the sum W of their absolute values, so that ``u = W mean_b Delta_b``
    keeps its size W. A subtracted update has a negative weight, which counts with its absolute value in the mean of
    squared norms. With equal weights that sum to 1, eta is that of the paper.

    Differences from the authors' code: it multiplies epsilon by the number of participants and decreases it from round
    to round, like local step sizes, and it evaluates the mean of the last two models. Here epsilon is that of the
    paper, and the model itself is evaluated.

    Args:
        epsilon: constant that bounds eta if the mean of the updates is nearly zero, > 0, of the order of
            ``||Delta||^2``. The authors use 0.001 for CIFAR and 0.1 for EMNIST.

    Raises:
        ConfigurationError: if `epsilon` is not positive, or if the aggregation is not a weighted sum.

    Example:
        The squared norms are 5 and 2, and their mean is 2.8 times the squared norm of the mean update, so eta is 1.4:

        >>> from turnout.base.trial import report
        >>> even = torch.tensor([0.5, 0.5], dtype=torch.float64)
        >>> one = report([[2.0, 1.0], [-1.0, 1.0]])
        >>> FedExP(epsilon=1e-9).scaled(torch.tensor([0.5, 1.0]), even, one)
        tensor([0.7000, 1.4000])

    Reference: Jhunjhunwala, Wang and Joshi, "FedExP: speeding up federated averaging via extrapolation", ICLR 2023.
    """

    epsilon: Positive = 1e-3

    def fits(self, algorithm: Slots) -> None:
        """Raise an error unless the direction is a weighted sum of this round's updates."""
        if not isinstance(algorithm.aggregation, WeightedSum):
            raise ConfigurationError(
                "FedExP's step is the ratio of the mean of ||Delta||^2 to ||mean of Delta||^2 of the same updates, and "
                f"{type(algorithm.aggregation).__name__} has another direction than their mean: leave one out"
            )

    def scaled(self, direction: torch.Tensor, weights: Weights, report: Report) -> torch.Tensor:
        """Return ``eta u``, ``[P]``."""
        size = weights.abs()
        total = size.sum()
        spread = size @ report.updates.norms().square() / total
        length = (torch.linalg.vector_norm(direction, dtype=torch.float64) / total).square()
        eta = torch.where(total > 0, (0.5 * spread / (length + self.epsilon)).clamp(min=1.0), 1.0)
        return direction * eta.to(direction.dtype)

    def apply(self, params: torch.Tensor, direction: torch.Tensor, version: int, state: State) -> WithState:
        """Return the model plus the direction, which `scaled` has multiplied by eta, and the state."""
        return params + direction, state
