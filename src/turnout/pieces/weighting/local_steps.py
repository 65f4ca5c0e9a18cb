"""Divide updates by their number of local steps (FedNova)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Normalizer, Slots, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State


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
