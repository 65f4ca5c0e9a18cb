"""Divide weights: the last link of every weighting chain, in which papers differ most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Normaliser, Weights, WithState


class ByOneNumber(Normaliser):
    """Base class of normalisers that divide all weights of a step by one number."""

    reads = "timing"

    divisor_is_public: ClassVar[bool] = False
    """True if the divisor reveals nothing of any client's data, even where weights do."""

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return 1 for each report."""
        return torch.ones(len(report), dtype=torch.float64)


@dataclass(frozen=True)
class DivideByClients(ByOneNumber, name="divide_by_clients"):
    """``w_b <- w_b / N``: by all clients, absent ones included (FedAU, last line of Algorithm 1; "average all").

    Example:
        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(DivideByClients(), report([[0.0]] * 2), weights=[1.0, 3.0], num_clients=10)
        [0.1, 0.3]
    """

    divisor_is_public = True
    participation = "none"

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the number of clients of the federation."""
        return weights / federation.num_clients, state


@dataclass(frozen=True)
class DivideByParticipants(ByOneNumber, name="divide_by_participants"):
    """``w_b <- w_b / B``: by the number of reports ("average participating").

    Example:
        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(DivideByParticipants(), report([[0.0]] * 2), weights=[1.0, 3.0])
        [0.5, 1.5]
    """

    divisor_is_public = True

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the number of reports."""
        return weights / max(len(report), 1), state


@dataclass(frozen=True)
class DivideBySum(ByOneNumber, name="divide_by_sum"):
    """``w_b <- w_b / sum_b w_b``: weights that sum to one (FedAvg by examples). All zero stay zero.

    Example:
        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(DivideBySum(), report([[0.0]] * 2), weights=[1.0, 3.0])
        [0.25, 0.75]
    """

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the weights' sum."""
        total = weights.sum()
        return (weights / total).where(total != 0, weights), state


@dataclass(frozen=True)
class DivideByAbsoluteSum(ByOneNumber, name="divide_by_absolute_sum"):
    """``w_b <- w_b / sum_b |w_b|``: negative weights subtract, and all have the size of a mean (FOLB, eq. 13 and 18).

    All zero stay zero, which leaves the model unchanged.

    Example:
        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(DivideByAbsoluteSum(), report([[0.0]] * 2), weights=[1.0, -3.0])
        [0.25, -0.75]
    """

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the sum of absolute weights."""
        largest = weights.abs().max().clamp(min=torch.finfo(weights.dtype).tiny)  # so that no sum overflows
        total = (weights / largest).abs().sum()
        return (weights / largest / total).where(total != 0, weights), state
