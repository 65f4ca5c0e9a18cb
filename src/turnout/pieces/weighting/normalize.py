"""Normalize weights: the last link of every weighting chain, in which the papers differ most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from turnout.base import Normalizer, Slots, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
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


@dataclass(frozen=True)
class DivideByLocalSteps(Normalizer, name="divide_by_local_steps"):
    """Divide each update by its number of local steps, and multiply by the mean number of steps (FedNova, eq. 6).

    ``w_b <- p_b tau_eff / tau_b``, where ``p_b = w_b / sum_b w_b`` is the share of report b in the weights w, tau_b is
    its number of local steps, and ``tau_eff = sum_b p_b tau_b`` is their mean.

    Without the division, clients with more local steps pull the fixed point toward their own objective. With it, the
    fixed point is that of the true objective, and the step has the size of an average client's. Weights that are all
    zero stay zero, and a report without a local step gets the weight zero.

    Raises:
        ConfigurationError: if local training has momentum, adaptive steps or a correction such as a proximal term. Then
            ``||a_b||_1`` of the paper differs from tau_b.

    Example:
        Reports of 1 and 3 local steps:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideByLocalSteps(), report([[0.0]] * 2, num_steps=[1, 3]))
        [1.0, 0.3333]

    Reference: Wang et al., "Tackling the objective inconsistency problem in heterogeneous federated optimization",
    NeurIPS 2020 (eq. 6 for plain local SGD).
    """

    def fits(self, algorithm: Slots) -> None:
        """Raise an error unless local training is plain SGD, whose gradients in a round have equal weights."""
        local = algorithm.local
        if local.traits.adapts or algorithm.corrections:
            momentum = getattr(local, "momentum", 0.0)
            rule = f"momentum={momentum}" if momentum else type(local).__name__
            what = rule if local.traits.adapts else type(algorithm.corrections[0]).__name__
            raise ConfigurationError(
                f"FedNova divides an update by its number of steps, which is right for plain SGD; with {what} the gradients "
                "of a round have unequal weights: leave it out"
            )

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the normalized weights, divided by the steps and multiplied by their mean, and the state."""
        times = to_device(self.factors(report, version, state, federation), weights.device)
        steps = to_device(report.num_steps, weights.device, weights.dtype)
        total = weights.sum()
        share = (weights / total).where(total != 0, weights)
        effective = share.dot(steps)
        return share * effective * times, state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return ``1 / tau`` of each report; 0 for a report without a local step."""
        steps = torch.from_numpy(report.num_steps).double()
        return (1.0 / steps).where(steps > 0, 0.0)
