"""q-FFL: clients count more the worse the model serves them, with the step size that this needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError, not_negative
from turnout.core.device import to_device
from turnout.core.schedule import Schedule, check_step_size, step_size
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Normaliser, Slots, Weights, WithState

_LEAST = 1e-10  # added to losses, because a loss of 0 has no power below 0


@dataclass(frozen=True)
class DivideByCurvature(Normaliser, name="divide_by_curvature"):
    """``w_b <- w_b F_b^q / sum_b w_b (q F_b^(q-1) ||Delta_b||^2 / gamma + F_b^q)``: q-FedAvg's step.

    In the paper's terms, with ``L = 1/gamma`` and ``Dw_b = -L Delta_b``, w moves by ``-sum_b F_b^q Dw_b / sum_b h_b`` with
    ``h_b = q F_b^(q-1) ||Dw_b||^2 + L F_b^q`` (algorithm 2): h_b bounds the curvature of ``F_b^(q+1) / (q+1)`` where L bounds
    that of F_b, so that a step size that suits q = 0 suits all q. At q = 0 it is the mean. F_b is the loss of the received
    model on the client's training data, 0 if it is negative, plus 1e-10.

    Args:
        q: how much the badly served count more; 0 not at all, and large q only the worst of all (AFL).
        lr: gamma, the clients' step size.

    Raises:
        ConfigurationError: for q < 0, or a step size that is not that of the local rule.

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """

    needs = ("start_loss",)

    q: float = 1.0
    lr: float | Schedule = 0.1

    def __post_init__(self) -> None:
        not_negative("q", self.q)
        check_step_size("lr", self.lr)

    def fits(self, algorithm: Slots) -> None:
        """Gamma turns updates into gradients, so it must be the one that made the updates."""
        if algorithm.local.normalises:
            raise ConfigurationError(
                f"q-FFL divides updates by the clients' step size to have their gradients, and a step of "
                f"{type(algorithm.local).__name__} is as long whatever the gradient's length is: use Sgd"
            )
        if (local := getattr(algorithm.local, "lr", self.lr)) != self.lr:
            raise ConfigurationError(
                f"q-FFL divides updates by the clients' step size, {local} here, but {type(self).__name__} has lr={self.lr}: "
                f"write {type(self).__name__}(lr={local})"
            )

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Multiply by the power of the loss, and divide by the sum of the curvatures."""
        loss = self._loss(report)
        relative = loss / loss.max()  # without it, high powers overflow
        power = weights * relative**self.q
        curvature = power * (1.0 + self._relative_curvature(report, loss))
        total = curvature.sum()
        return (power / total).where(total > 0, 0.0), state

    def _loss(self, report: Report) -> torch.Tensor:
        """F_b, ``[B]``."""
        return report.seen["start_loss"].double().clamp(min=0.0) + _LEAST

    def _relative_curvature(self, report: Report, loss: torch.Tensor) -> torch.Tensor:
        """``q ||Delta_b||^2 / (gamma F_b)``, ``[B]``."""
        lr = to_device(step_size(self.lr, report.version), loss.device, loss.dtype)
        return self.q * report.updates.norms().square() / (lr * loss)
