"""Weigh updates by how well a client's gradient agrees with the cohort's, and by its inexactness (FOLB)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import ConfigurationError, not_negative
from turnout.core.device import to_device
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.base import Normaliser, Slots, Weighting, Weights, WithState
from turnout.pieces.weighting.examples import ByExamples


@dataclass(frozen=True)
class Alignment(Weighting, name="alignment"):
    """``w_b <- w_b I_b``, ``I_b = <grad_1 f, grad F_b> - psi gamma_b ||grad_1 f||^2`` (FOLB, eq. 9, 13 and 18).

    ``grad_1 f = sum_b w_b grad F_b / sum_b w_b`` estimates the global gradient from the cohort; with the plain weights
    that a chain begins with it is eq. 10. Weights that come in from earlier links are kept: `ByExamples` before it
    makes both the estimate and the weights those of ``p_k = n_k / n``, which section II-A has and eq. 9 to 18 leave out.

    Args:
        psi: how much inexactness gamma counts, in place of the unknown constants of eq. 18; 0 is eq. 13, and needs no
            inexactness.

    Example:
        Two gradients agree with their mean (0, 1/3), and one opposes it:

        >>> from turnout.pieces.base.trial import report, weigh
        >>> gradients = [[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0]]
        >>> weigh(Alignment(), report([[0.0]] * 3, start_gradient=gradients))
        [0.3333, 0.3333, -0.3333]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    psi: float = 0.0

    def __post_init__(self) -> None:
        not_negative("psi", self.psi)

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """The gradient at the received model, and inexactness where it counts."""
        return ("start_gradient", "inexactness") if self.psi else ("start_gradient",)

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Multiply by the alignment with the cohort's mean gradient."""
        gradient = report.seen["start_gradient"]
        mean = mean_gradient(report, weights)
        aligned = Updates.of(gradient).inner(mean)
        if self.psi:
            aligned -= self.psi * report.seen["inexactness"].double() * mean.dot(mean)
        return weights * aligned, state


@dataclass(frozen=True)
class SignOfAlignment(Weighting, name="sign_of_alignment"):
    """Weight reports by ``sign(<grad f, grad F_b>)``: updates that point uphill are subtracted (FOLB, eq. 5).

    ``grad f`` is the mean gradient of all who were asked for one before the round, so it needs a selection that asks
    (`ByAlignment`). A zero inner product has sign 0.

    Args:
        by_examples: clients count by their examples in ``grad f``; as the selection has it.

    Example:
        >>> import turnout as to
        >>> to.fednu(signs=True).weighting
        (SignOfAlignment(by_examples=False), DivideByParticipants())
    """

    needs = ("start_gradient",)

    by_examples: bool = False

    def fits(self, algorithm: Slots) -> None:
        """Refuse selections that do not measure the gradient of the global loss."""
        _asks_for_gradients(self, algorithm, "the gradient of the global loss")
        if getattr(algorithm.selection, "by_examples", self.by_examples) != self.by_examples:
            one, other = (self, algorithm.selection) if self.by_examples else (algorithm.selection, self)
            raise ConfigurationError(
                f"{type(one).__name__} has the gradient of f with clients weighted by their examples and "
                f"{type(other).__name__} has not: write by_examples=True in both, or in neither"
            )

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Multiply by the sign."""
        assert report.measured is not None
        if not len(report.measured):
            return torch.zeros_like(weights), state
        counts = _counts(report.measured, self.by_examples, weights)
        return weights * Updates.of(report.seen["start_gradient"]).inner(
            mean_gradient(report.measured, counts)
        ).sign(), state


@dataclass(frozen=True)
class DivideBySecondCohort(Normaliser, name="divide_by_second_cohort"):
    """``w_b <- w_b / sum_{k in S_2} <grad F_k, grad_2 f>``, which is ``K ||grad_2 f||^2`` (FOLB, eq. 9 and 10).

    S_2 is a second cohort that only sends gradients (`TwoCohorts`). There are no absolute values here: weights sum to
    ``||grad_1 f||^2 / ||grad_2 f||^2``, so a small gradient of S_2 makes a large step. Zero makes all weights zero, which
    leaves the model unchanged. K is the number of reports of S_1, so that bad ones which were dropped from either cohort
    do not change the size of the step.

    Args:
        by_examples: clients of S_2 count by their examples, as `ByExamples` has it for S_1; needed exactly where that is.

    Example:
        >>> import turnout as to
        >>> to.folb_two_set().weighting
        (Alignment(psi=0.0), DivideBySecondCohort(by_examples=False))
    """

    by_examples: bool = False

    def fits(self, algorithm: Slots) -> None:
        """Refuse selections without a second cohort, and cohorts that are weighed differently."""
        _asks_for_gradients(self, algorithm, "the gradients of a second cohort")
        if any(isinstance(piece, ByExamples) for piece in algorithm.weighting) != self.by_examples:
            one, other = ("second", "first") if self.by_examples else ("first", "second")
            raise ConfigurationError(
                f"the {one} cohort counts by examples and the {other} does not, so weights would sum to a number of examples "
                "or its inverse: write ByExamples() and DivideBySecondCohort(by_examples=True), or neither"
            )

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Divide by the alignment of the second cohort with itself."""
        assert report.measured is not None
        if not len(report.measured):
            return torch.zeros_like(weights), state
        mean = mean_gradient(report.measured, _counts(report.measured, self.by_examples, weights))
        total = _counts(report, self.by_examples, weights).sum() * mean.dot(mean)
        return (weights / total).where(total != 0, 0.0), state


def _counts(report: Report, by_examples: bool, like: torch.Tensor) -> Weights:
    """Return the weight of each report before alignment."""
    counts = report.num_examples if by_examples else np.ones(len(report))
    return to_device(counts, like.device, like.dtype)


def mean_gradient(report: Report, weights: Weights | None = None) -> torch.Tensor:
    """Return the mean of the clients' gradients at the received model (eq. 10), float64 ``[P]``; zero if the weights are."""
    gradient = report.seen["start_gradient"]
    if weights is None:
        weights = torch.ones(len(report), dtype=torch.float64, device=gradient.device)
    total = weights.sum()
    # Summed before it is divided, because opposite gradients then sum to exactly zero, not to a rounding error.
    return (Updates.of(gradient).weighted_sum(weights) / total).where(total != 0, 0.0)


def _asks_for_gradients(piece: Weighting, algorithm: Slots, what: str) -> None:
    """Refuse a selection that does not ask anyone for gradients."""
    if "start_gradient" not in {name for m in algorithm.selection.measurements for name in m.gives}:
        raise ConfigurationError(
            f"{type(piece).__name__} needs {what}, and {type(algorithm.selection).__name__} asks nobody for gradients "
            "before the round: use the selection TwoCohorts() or ByAlignment()"
        )
