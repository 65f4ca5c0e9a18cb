"""Divide updates by their number of local steps (FedNova)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Normaliser, Slots, Weights, WithState


@dataclass(frozen=True)
class DivideByLocalSteps(Normaliser, name="divide_by_local_steps"):
    """FedNova's normalised averaging: ``w_b <- p_b tau_eff / tau_b``, ``p_b = w_b / sum w``, ``tau_eff = sum_b p_b tau_b``.

    Each update is divided by its number of local steps tau_b, so that the fixed point is the one of the true objective
    however unequal the work; the step keeps the size of an average client's. All weights zero stay zero, and clients
    without a step count nothing.

    Raises:
        ConfigurationError: with momentum or a proximal term, with which ``||a_b||_1`` is another number than tau_b.

    Example:
        Of 1 and 3 steps each counts by its mean step; the step is as long as an average client's:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(DivideByLocalSteps(), report([[0.0]] * 2, num_steps=[1, 3]))
        [1.0, 0.3333]

    Reference: Wang et al., "Tackling the objective inconsistency problem in heterogeneous federated optimization",
    NeurIPS 2020 (eq. 6 for plain local SGD).
    """

    reads_steps = True

    def fits(self, algorithm: Slots) -> None:
        """Refuse rules other than plain SGD, by which the gradients of a round have unequal weights."""
        local = algorithm.local
        if local.adapts or algorithm.corrections:
            momentum = getattr(local, "momentum", 0.0)
            rule = f"momentum={momentum}" if momentum else type(local).__name__
            what = rule if local.adapts else type(algorithm.corrections[0]).__name__
            raise ConfigurationError(
                f"FedNova divides an update by its number of steps, which is right for plain SGD; with {what} the gradients "
                "of a round do not count alike: leave it out"
            )

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the steps, and multiply by their mean."""
        times = to_device(self.factors(report, version, state, federation), weights.device)
        steps = to_device(report.num_steps, weights.device, weights.dtype)
        total = weights.sum()
        share = (weights / total).where(total != 0, weights)
        effective = share.dot(steps)
        return share * effective * times, state

    def factors(self, report: Report, version: int, state: State, federation: Federation) -> Weights:
        """Return ``1 / tau`` of each report; 0 without a step."""
        steps = torch.from_numpy(report.num_steps).double()
        return (1.0 / steps).where(steps > 0, 0.0)
