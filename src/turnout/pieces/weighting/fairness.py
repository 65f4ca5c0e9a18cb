"""Weight reports by a power of the client's loss, with the matching step size (q-FFL)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Normalizer, Slots, Weighting, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.ranges import NotNegative
from turnout.core.schedule import Schedule, StepSize, step_size
from turnout.core.types import Federation, Report, State

_LEAST = 1e-10  # added to losses, because a negative power of 0 is infinite


@dataclass(frozen=True)
class DivideByCurvature(Normalizer, name="divide_by_curvature"):
    """Weight each report by a power of its client's loss, and divide by a bound of the curvature (q-FedAvg, Algorithm 2).

    ``w_b <- w_b F_b^q / sum_b w_b (q F_b^(q-1) ||Delta_b||^2 / gamma + F_b^q)``. Here w_b is the weight of report b,
    F_b is the loss of the received model over the client's training examples, Delta_b is its update, gamma is the
    clients' step size, and q sets the degree of fairness. Losses below 0 count as 0, and 1e-10 is added to each.

    In the paper's terms, with ``L = 1/gamma`` and ``Dw_b = -L Delta_b``, the model moves by
    ``Dw = -sum_b F_b^q Dw_b / sum_b h_b``, where ``h_b = q F_b^(q-1) ||Dw_b||^2 + L F_b^q``. If L bounds the curvature
    of F_b, then h_b bounds that of ``F_b^(q+1) / (q+1)``, so a step size that is tuned for ``q = 0`` suits every q.
    With ``q = 0`` the result is the mean.

    Args:
        q: fairness exponent, >= 0. Larger values give more weight to clients with a high loss; 0 gives none, and very
            large values approach the worst client alone (AFL).
        lr: step size gamma of the clients. It must equal that of the local rule.

    Raises:
        ConfigurationError: if `q` is negative, if `lr` is not the step size of the local rule, or if the length of a
            local step does not depend on the gradient.

    Example:
        With q = 1, three times the loss gives three times the weight. The curvature makes the sum of weights less than
        1:

        >>> from turnout.base.trial import report, weigh
        >>> weigh(DivideByCurvature(q=1.0, lr=0.1), report([[0.1], [0.1]], start_loss=[1.0, 3.0]))
        [0.2381, 0.7143]

    Reference: Li et al., "Fair resource allocation in federated learning", ICLR 2020.
    """

    needs = ("start_loss",)

    q: NotNegative = 1.0
    lr: StepSize = 0.1

    def fits(self, algorithm: Slots) -> None:
        """Raise an error if the step size differs from that of the local rule: gamma turns updates into gradients."""
        check_gamma(self, self.lr, algorithm)

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights times the power of the loss, divided by the sum of the curvatures, and the state."""
        loss = losses(report)
        relative = loss / loss.max()  # so that high powers do not overflow; the factor cancels in the quotient
        power = weights * relative**self.q
        curvature = power * (1.0 + relative_curvature(self.q, self.lr, report, loss))
        total = curvature.sum()
        return (power / total).where(total > 0, 0.0), state


def check_gamma(piece: Weighting, lr: float | Schedule, algorithm: Slots) -> None:
    """Raise an error unless `lr` is the step size of the local rule and its steps are proportional to the gradient."""
    if algorithm.local.traits.normalizes:
        raise ConfigurationError(
            f"q-FFL divides updates by the clients' step size to recover gradients, but the length of a step of "
            f"{type(algorithm.local).__name__} does not depend on that of the gradient: use Sgd"
        )
    if (local := getattr(algorithm.local, "lr", lr)) != lr:
        name = type(piece).__name__
        raise ConfigurationError(
            f"q-FFL divides updates by the clients' step size, {local} here, but {name} has lr={lr}: write {name}(lr={local})"
        )


def losses(report: Report) -> torch.Tensor:
    """Return F of each report, float64 ``[B]``, > 0."""
    return report.seen["start_loss"].double().clamp(min=0.0) + _LEAST


def relative_curvature(q: float, lr: float | Schedule, report: Report, loss: torch.Tensor) -> torch.Tensor:
    """Return ``q ||Delta_b||^2 / (gamma F_b)``, float64 ``[B]``: the relative excess of h_b over ``F_b^q / gamma``."""
    gamma = to_device(step_size(lr, report.version), loss.device, loss.dtype)
    return q * report.updates.norms().square() / (gamma * loss)
