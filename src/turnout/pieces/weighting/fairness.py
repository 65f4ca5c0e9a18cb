"""Weigh clients by a power of their loss, with the step size that this needs (q-FFL)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError, not_negative
from turnout.core.device import to_device
from turnout.core.schedule import Schedule, check_step_size, step_size
from turnout.core.types import Federation, Report, State
from turnout.pieces.base import Normaliser, Slots, Weighting, Weights, WithState

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

    Example:
        With q = 1 a client with three times the loss counts three times; the step shrinks by the curvature:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> weigh(DivideByCurvature(q=1.0, lr=0.1), report([[0.1], [0.1]], start_loss=[1.0, 3.0]))
        [0.2381, 0.7143]

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """

    needs = ("start_loss",)

    q: float = 1.0
    lr: float | Schedule = 0.1

    def __post_init__(self) -> None:
        not_negative("q", self.q)
        check_step_size("lr", self.lr)

    def fits(self, algorithm: Slots) -> None:
        """Refuse another step size than the one that made the updates: gamma turns updates into gradients."""
        check_gamma(self, self.lr, algorithm)

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Multiply by the power of the loss, and divide by the sum of the curvatures."""
        loss = losses(report)
        relative = loss / loss.max()  # without it, high powers overflow
        power = weights * relative**self.q
        curvature = power * (1.0 + relative_curvature(self.q, self.lr, report, loss))
        total = curvature.sum()
        return (power / total).where(total > 0, 0.0), state


def check_gamma(piece: Weighting, lr: float | Schedule, algorithm: Slots) -> None:
    """Refuse a step size of q-FFL other than that of the local rule, and rules whose steps do not grow with the gradient."""
    if algorithm.local.normalises:
        raise ConfigurationError(
            f"q-FFL divides updates by the clients' step size to have their gradients, and a step of "
            f"{type(algorithm.local).__name__} is as long whatever the gradient's length is: use Sgd"
        )
    if (local := getattr(algorithm.local, "lr", lr)) != lr:
        name = type(piece).__name__
        raise ConfigurationError(
            f"q-FFL divides updates by the clients' step size, {local} here, but {name} has lr={lr}: write {name}(lr={local})"
        )


def losses(report: Report) -> torch.Tensor:
    """Return F_b, float64 ``[B]``, > 0."""
    return report.seen["start_loss"].double().clamp(min=0.0) + _LEAST


def relative_curvature(q: float, lr: float | Schedule, report: Report, loss: torch.Tensor) -> torch.Tensor:
    """Return ``q ||Delta_b||^2 / (gamma F_b)``, float64 ``[B]``: by how much h_b exceeds ``F_b^q``, relatively."""
    gamma = to_device(step_size(lr, report.version), loss.device, loss.dtype)
    return q * report.updates.norms().square() / (gamma * loss)
