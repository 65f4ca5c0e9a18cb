"""Measurements that clients report beside their update; each combines with any solver."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.base import Correction, Measurement, OfRequirement, OfTraining
from turnout.base.tuning import tuned
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.types import State
from turnout.engine.cohort import Start
from turnout.engine.full_batch import full_gradient
from turnout.pieces.local.solver import Solver


@dataclass(frozen=True)
class StartLoss(Measurement, name="start_loss"):
    """Report the loss of the received model on each client's training data.

    ``start_loss [B]`` is ``F_k(w^t)``, the mean loss of the received model w^t over all examples of client k.

    Example:
        >>> import turnout as to
        >>> to.compose(StartLoss(), to.weighting.DivideByCurvature()).measurements
        (StartLoss(),)
    """

    gives = ("start_loss",)

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the loss over all examples of each client."""
        return {"start_loss": start.loss}


@dataclass(frozen=True)
class LossRms(Measurement, name="loss_rms"):
    """Report the root mean square of the received model's losses on each client's examples, which `Oort` reads.

    ``start_loss_rms [B]`` is ``sqrt(mean_i loss_i^2)`` over all examples i of a client.

    Example:
        >>> import turnout as to
        >>> to.compose(LossRms(), to.selection.Oort()).measurements
        (LossRms(),)
    """

    gives = ("start_loss_rms",)

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the root mean square of the losses of each client."""
        return {"start_loss_rms": start.mean_square_loss.sqrt()}


@dataclass(frozen=True)
class AppealGap(OfRequirement, name="appeal_gap"):
    """Report the gap between the received model's loss and the loss that each client requires (MaxFL).

    ``appeal_gap [B]`` is ``F_k(w^t) - rho_k``, where F_k is the loss over all training examples of client k, w^t the
    received model, and rho_k the requirement of the client (`Population.requirement`); float64, negative if the model
    is better than required. If the requirement is an accuracy, the gap is rho_k minus the model's accuracy.

    Args:
        tuning: local steps that tune the model to the client's data before its gap is measured; the tuned model is then
            discarded (MaxFL, section 5.1, "Local tuning for personalization"). None measures the received model.

    Raises:
        ConfigurationError: if the clients have no requirement.

    Example:
        >>> import turnout as to
        >>> to.maxfl().measurements
        (AppealGap(tuning=None),)

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    gives = ("appeal_gap",)

    tuning: Solver | None = None

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the gap between the model and the requirement of each client."""
        clients, requirement = start.clients, start.clients.requirement
        if requirement is None:
            raise ConfigurationError(
                "AppealGap compares the model with the requirements of clients, and these clients have none: write "
                "Population(requirement=...)"
            )
        if self.tuning is not None:
            task = tuned(self.tuning, start.task, clients, "tuning before the gap")
            start = Start(task, clients)
        required = to_device(requirement.train[clients.rows], start.params.device)
        return {"appeal_gap": requirement.gap(start.loss.double(), start.accuracy, required)}


@dataclass(frozen=True)
class StartGradient(Measurement, name="start_gradient"):
    """Report the gradient of each client's loss at the received model.

    ``start_gradient [B, P]`` is ``grad F_k(w^t)``, over all examples of client k, at the received model w^t.

    Example:
        >>> import turnout as to
        >>> to.folb().measurements
        (StartGradient(),)
    """

    gives = ("start_gradient",)

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the gradient over all examples of each client."""
        return {"start_gradient": start.gradient}


@dataclass(frozen=True)
class GradientNorm(Measurement, name="gradient_norm"):
    """Report the norm of the gradient of each client's loss at the received model.

    ``start_gradient_norm [B]`` is ``||grad F_k(w^t)||``, over all examples of client k: one number, where
    `StartGradient` sends a vector.

    Example:
        >>> import turnout as to
        >>> to.selection.ByGradientNorm().measurements
        (GradientNorm(),)
    """

    gives = ("start_gradient_norm",)

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the norm of the gradient over all examples of each client."""
        return {"start_gradient_norm": _norms(start.gradient)}


@dataclass(frozen=True)
class Inexactness(OfTraining, name="inexactness"):
    """Report how inexactly each client solved its local problem (FOLB, assumption 4 and section V).

    ``inexactness [B]`` is ``gamma_k = ||grad h_k(w_k^{t+1}, w^t)|| / ||grad h_k(w^t, w^t)||``, where ``h_k(w, w^t) =
    F_k(w) + mu/2 ||w - w^t||^2`` is the local objective, w^t the received model, and w_k^{t+1} the model after the
    local steps. 0 means an exact minimizer, and 1 means no progress. Gradients are over all examples of a client and
    include its corrections, such as `Prox`. gamma_k is 0 if the gradient at w^t is zero.

    Args:
        clip: whether to clip gamma_k to [0, 1], the range of the paper's analysis; noisy steps can exceed 1.

    Example:
        >>> import turnout as to
        >>> to.folb_heterogeneous().measurements
        (StartGradient(), Inexactness(clip=False))

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    gives = ("inexactness",)

    clip: bool = False

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the ratio of the two gradient norms of each client."""
        assert delta is not None
        first = start.params.expand_as(delta)
        end = first + delta
        before, after = start.gradient, full_gradient(start.clients, end)[1]
        for correction in corrections:
            before, after = correction.correct(before, first, first), correction.correct(after, end, first)
        at_start = _norms(before)
        ratio = torch.where(at_start != 0, _norms(after) / at_start, 0.0)  # NaN stays NaN, for the server to drop
        return {"inexactness": ratio.clamp(max=1.0) if self.clip else ratio}


def _norms(rows: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean norm of each row, float64 ``[B]``; squares of small gradients would underflow in float32."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
