"""Normalize weights: the last link of every weighting chain, in which the papers differ most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.base import Normalizer, Weights, WithState
from turnout.core.types import Federation, Report, State


class ByOneNumber(Normalizer):
    """Base class of normalizers that divide all weights of a step by one number."""

    reads = "timing"

    divisor_is_public: ClassVar[bool] = False
    """True if the divisor reveals nothing of any client's data, even if the weights do."""

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return 1 for each report."""
        return torch.ones(len(report), dtype=torch.float64)


@dataclass(frozen=True)
class DivideByClients(ByOneNumber, name="divide_by_clients"):
    """Divide weights by the number of all clients, absent ones included (FedAU, last line of Algorithm 1; "average all").

    ``w_b <- w_b / N``, where w_b is the weight of report b, and N is the number of clients of the federation. With unit
    weights the step is small in rounds with few participants.

    Example:
        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideByClients(), report([[0.0]] * 2), weights=[1.0, 3.0], num_clients=10)
        [0.1, 0.3]

    Reference: Wang and Ji, "A lightweight method for tackling unknown participation statistics in federated averaging",
    ICLR 2024.
    """

    divisor_is_public = True
    participation = "none"

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights divided by the number of clients of the federation, and the state."""
        return weights / federation.num_clients, state


@dataclass(frozen=True)
class DivideByParticipants(ByOneNumber, name="divide_by_participants"):
    """Divide weights by the number of reports in the step (FedAU, baseline "average participating").

    ``w_b <- w_b / B``, where w_b is the weight of report b, and B is the number of reports. With unit weights this is
    the plain mean of the updates.

    Example:
        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideByParticipants(), report([[0.0]] * 2), weights=[1.0, 3.0])
        [0.5, 1.5]
    """

    divisor_is_public = True

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights divided by the number of reports, and the state."""
        return weights / max(len(report), 1), state


@dataclass(frozen=True)
class DivideBySum(ByOneNumber, name="divide_by_sum"):
    """Divide weights by their sum, so that they sum to one (FedAvg, after `ByExamples`).

    ``w_b <- w_b / sum_b w_b``, where w_b is the weight of report b. Weights that sum to zero are not divided, so
    weights that are all zero stay zero.

    Example:
        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideBySum(), report([[0.0]] * 2), weights=[1.0, 3.0])
        [0.25, 0.75]
    """

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights divided by their sum, and the state."""
        total = weights.sum()
        return (weights / total).where(total != 0, weights), state


@dataclass(frozen=True)
class DivideByAbsoluteSum(ByOneNumber, name="divide_by_absolute_sum"):
    """Divide weights by the sum of their absolute values (FOLB, eq. 13 and 18).

    ``w_b <- w_b / sum_b |w_b|``, where w_b is the weight of report b. Negative weights subtract their updates, and the
    absolute weights sum to one, so the step has the size of a mean. Weights that are all zero stay zero, which leaves
    the model unchanged.

    Example:
        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideByAbsoluteSum(), report([[0.0]] * 2), weights=[1.0, -3.0])
        [0.25, -0.75]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights divided by the sum of their absolute values, and the state."""
        largest = weights.abs().max().clamp(min=torch.finfo(weights.dtype).tiny)  # so that the sum does not overflow
        total = (weights / largest).abs().sum()
        return (weights / largest / total).where(total != 0, weights), state
