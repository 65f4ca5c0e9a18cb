"""Measure what clients report beside their update; each measurement combines with any local rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.types import State
from turnout.engine.cohort import Start
from turnout.engine.full_batch import full_gradient
from turnout.pieces.base import Correction, Measurement
from turnout.pieces.base.tuning import tuned
from turnout.pieces.local.solver import Solver


@dataclass(frozen=True)
class StartLoss(Measurement, name="start_loss"):
    """``start_loss [B]``: the loss ``F_k(w^t)`` of the received model over all of a client's examples.

    Example:
        >>> import turnout as to
        >>> to.compose(StartLoss(), to.weighting.DivideByCurvature()).measurements
        (StartLoss(),)
    """

    gives = ("start_loss",)

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the full local loss."""
        return {"start_loss": start.loss}


@dataclass(frozen=True)
class LossRms(Measurement, name="loss_rms"):
    """``start_loss_rms [B]``: ``sqrt(mean_i loss_i^2)`` of the received model over a client's examples, for `Oort`.

    Example:
        >>> import turnout as to
        >>> to.compose(LossRms(), to.selection.Oort()).measurements
        (LossRms(),)
    """

    gives = ("start_loss_rms",)

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the root of the mean squared loss."""
        return {"start_loss_rms": start.mean_square_loss.sqrt()}


@dataclass(frozen=True)
class AppealGap(Measurement, name="appeal_gap"):
    """``appeal_gap [B]``: ``F_k(w^t) - rho_k``, how much the received model falls short of what a client requires.

    Over all of a client's training examples, float64; negative where the model does better. Of an accuracy that is
    required it is ``rho_k`` minus the model's accuracy.

    Args:
        tuning: local steps that fit the model to the client first; only the gap of that model is reported, and it is then
            discarded (MaxFL, section 5.1, "Local tuning for personalization"). None is the model as it came.

    Example:
        >>> import turnout as to
        >>> to.maxfl().measurements
        (AppealGap(tuning=None),)

    Reference: Cho et al., "Maximizing global model appeal in federated learning", TMLR 2024.
    """

    gives = ("appeal_gap",)
    of_requirement = True

    tuning: Solver | None = None

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the gap to what the clients require."""
        clients, requirement = start.clients, start.clients.requirement
        if requirement is None:
            raise ConfigurationError("AppealGap() is about what clients require, and here nobody said that they do")
        if self.tuning is not None:
            task = tuned(self.tuning, start.task, clients, "tuning before the gap")
            start = Start(task, clients)
        required = to_device(requirement.train[clients.rows], start.params.device)
        return {"appeal_gap": requirement.gap(start.loss.double(), start.accuracy, required)}


@dataclass(frozen=True)
class StartGradient(Measurement, name="start_gradient"):
    """``start_gradient [B, P]``: the gradient ``grad F_k(w^t)`` of the received model over all of a client's examples.

    Example:
        >>> import turnout as to
        >>> to.folb().measurements
        (StartGradient(),)
    """

    gives = ("start_gradient",)

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the full local gradient."""
        return {"start_gradient": start.gradient}


@dataclass(frozen=True)
class GradientNorm(Measurement, name="gradient_norm"):
    """``start_gradient_norm [B]``: ``||grad F_k(w^t)||``, one number where `StartGradient` sends a vector.

    Example:
        >>> import turnout as to
        >>> to.selection.ByGradientNorm().measurements
        (GradientNorm(),)
    """

    gives = ("start_gradient_norm",)

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the norm of the full local gradient."""
        return {"start_gradient_norm": _norms(start.gradient)}


@dataclass(frozen=True)
class Inexactness(Measurement, name="inexactness"):
    """``inexactness [B]``: how far from solved a client left its local problem h_k (FOLB, assumption 4 and section V).

    ``gamma_k = ||grad h_k(w_k^{t+1}, w^t)|| / ||grad h_k(w^t, w^t)||``, ``h_k(w, w^t) = F_k(w) + mu/2 ||w - w^t||^2``: 0
    is an exact minimiser, 1 is no progress. Gradients are over all of a client's examples, and what corrects the local
    steps (`Prox`) belongs to h_k. A gradient that was zero from the start gives 0.

    Args:
        clip: keep it in [0, 1], where the analysis has it; noisy steps can go beyond 1.

    Example:
        >>> import turnout as to
        >>> to.folb_heterogeneous().measurements
        (StartGradient(), Inexactness(clip=False))

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    gives = ("inexactness",)
    of_training = True

    clip: bool = False

    def measure(self, start: Start, delta: torch.Tensor | None, corrections: tuple[Correction, ...]) -> State:
        """Return the ratio of the two norms."""
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
    """Return the Euclidean norm of each row, float64 ``[B]``: the squares of small gradients vanish in float32."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
