"""Multiply updates by the number of rounds since the client's last participation (FedAWE)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Weighting, Weights
from turnout.core.ranges import Positive
from turnout.core.types import Federation, Report, State


@dataclass(frozen=True)
class Echo(Weighting, name="echo"):
    """Multiply each update by the number of rounds since its client's last participation (FedAWE, innovation echoing).

    ``w_b <- w_b lr (t - tau_b)``. Here w_b is the weight of report b, t is the present round, tau_b is the round of the
    client's last participation (-1 if there was none), and lr is the global step size. So an update stands for the
    rounds that its client missed, too.

    In FedAWE clients continue from the model of the step after their last participation (`KeptModels`). Then
    ``t - tau_b`` is the number of server steps since that model, plus one, which is how it is computed.

    Args:
        lr: global step size eta_g, > 0. It multiplies updates, and not the models that they start from.

    Raises:
        ConfigurationError: if `lr` is not positive.

    Example:
        In the round from version 4, a client that continued from version 1 counts four times:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(Echo(), report([[0.0]] * 2, version=[4, 1]), version=4)
        [1.0, 4.0]

    Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client
    unavailability", NeurIPS 2024.
    """

    reads = "timing"
    participation = "own"

    lr: Positive = 1.0

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return the number of rounds that each update stands for, times the step size."""
        return torch.from_numpy(self.lr * (version - report.version + 1.0))
