"""Count an update once for every round that its client missed (FedAWE's adaptive innovation echoing)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import positive
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Weighting, Weights


@dataclass(frozen=True)
class Echo(Weighting, name="echo"):
    """``w_b <- w_b lr (t - tau_b)``: t is the present round, and tau_b that of the client's last participation, -1 if none.

    Where clients train from the model of the step after their last participation (`KeptModels`), this is the number of steps
    since that model, plus one.

    Attributes:
        lr: the global step size eta_g, which multiplies updates but not the models that they start from.

    Raises:
        ConfigurationError: for a step size that is not > 0.

    Example:
        A client that went on from version 1 counts four times in the round from version 4:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(Echo(), report([[0.0]] * 2, version=[4, 1]), version=4)
        [1.0, 4.0]

    Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client unavailability",
    NeurIPS 2024.
    """

    reads = "timing"
    participation = "own"

    lr: float = 1.0

    def __post_init__(self) -> None:
        positive("lr", self.lr)

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return how many rounds each update stands for, times the step size."""
        return torch.from_numpy(self.lr * (version - report.version + 1.0))
