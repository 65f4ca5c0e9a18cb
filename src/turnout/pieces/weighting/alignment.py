"""Weight reports by the agreement of their gradients with the cohort's mean gradient, and by inexactness (FOLB)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import Normalizer, Slots, Weighting, Weights, WithState
from turnout.core.checks import ConfigurationError
from turnout.core.device import to_device
from turnout.core.ranges import NotNegative
from turnout.core.types import Federation, Report, State
from turnout.core.updates import Updates
from turnout.pieces.weighting.examples import ByExamples


@dataclass(frozen=True)
class Alignment(Weighting, name="alignment"):
    """Weight each report by the inner product of its gradient with the cohort's mean gradient (FOLB, eq. 9, 13 and 18).

    ``w_b <- w_b I_b``, where ``I_b = <grad_1 f, grad F_b> - psi gamma_b ||grad_1 f||^2``. Here w_b is the weight of
    report b, ``grad F_b`` is the gradient of the client's loss over all of its examples at the received model, gamma_b
    is the inexactness of its local solution (see `Inexactness`), and ``grad_1 f = sum_b w_b grad F_b / sum_b w_b``
    estimates the global gradient from the cohort.

    A client whose gradient opposes the mean gets a negative weight, so its update is subtracted. Use
    `DivideByAbsoluteSum` (eq. 13 and 18) or `DivideBySecondCohort` (eq. 9) as the normalizer.

    At the start of a chain all weights are 1, and ``grad_1 f`` is the plain mean of eq. 10. Weights of earlier links
    are kept: after `ByExamples`, both the estimate and the weights follow ``p_k = n_k / n``, which section II-A of the
    paper announces and its eq. 9 to 18 leave out.

    Args:
        psi: penalty on inexactness, >= 0. It replaces the constant of eq. 18, which is unknown in practice. 0 gives eq.
            13, for which clients measure no inexactness.

    Raises:
        ConfigurationError: if `psi` is negative.

    Example:
        The first two gradients agree with the mean (0, 1/3), and the third opposes it:

        >>> from turnout.base.trial import report, weigh
        >>> gradients = [[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0]]
        >>> weigh(Alignment(), report([[0.0]] * 3, start_gradient=gradients))
        [0.3333, 0.3333, -0.3333]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    psi: NotNegative = 0.0

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names read in ``report.seen``: ``start_gradient``, and ``inexactness`` if `psi` is not 0."""
        return ("start_gradient", "inexactness") if self.psi else ("start_gradient",)

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights times the alignment with the cohort's mean gradient, and the state."""
        gradient = report.seen["start_gradient"]
        mean = mean_gradient(report, weights)
        aligned = Updates.of(gradient).inner(mean)
        if self.psi:
            aligned -= self.psi * report.seen["inexactness"].double() * mean.dot(mean)
        return weights * aligned, state


@dataclass(frozen=True)
class SignOfAlignment(Weighting, name="sign_of_alignment"):
    """Multiply each report by the sign of its gradient's inner product with the global gradient (FOLB, eq. 5).

    ``w_b <- w_b sign(<grad f, grad F_b>)``. Here w_b is the weight of report b, ``grad F_b`` is the gradient of the
    client's loss at the received model, and ``grad f`` is the mean gradient of the clients that measured theirs before
    the round, so the algorithm needs a selection with such a measurement (`ByAlignment`). Updates that point uphill are
    subtracted. The sign of 0 is 0.

    Args:
        by_examples: whether ``grad f`` weights clients by their number of examples. It must equal the option of the
            selection.

    Raises:
        ConfigurationError: if the selection measures no gradients, or if its `by_examples` differs.

    Example:
        >>> import turnout as to
        >>> to.fednu(signs=True).weighting
        (SignOfAlignment(by_examples=False), DivideByParticipants())

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    needs = ("start_gradient",)

    by_examples: bool = False

    def fits(self, algorithm: Slots) -> None:
        """Raise an error unless the selection measures the global gradient with the same weights of clients."""
        _asks_for_gradients(self, algorithm, "the gradient of the global loss")
        if getattr(algorithm.selection, "by_examples", self.by_examples) != self.by_examples:
            one, other = (self, algorithm.selection) if self.by_examples else (algorithm.selection, self)
            raise ConfigurationError(
                f"{type(one).__name__} weights clients by their examples in the global gradient and "
                f"{type(other).__name__} does not: write by_examples=True in both, or in neither"
            )

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights times the signs, and the state."""
        assert report.measured is not None
        if not len(report.measured):
            return torch.zeros_like(weights), state
        counts = _counts(report.measured, self.by_examples, weights)
        return weights * Updates.of(report.seen["start_gradient"]).inner(
            mean_gradient(report.measured, counts)
        ).sign(), state


@dataclass(frozen=True)
class DivideBySecondCohort(Normalizer, name="divide_by_second_cohort"):
    """Divide weights by the alignment of a second cohort with its own mean gradient (FOLB, eq. 9 and 10).

    ``w_b <- w_b / sum_{k in S_2} <grad F_k, grad_2 f>``, where w_b is the weight of report b, S_2 is a second cohort
    that only sends gradients (`TwoCohorts`) and ``grad_2 f`` is its mean gradient. The divisor equals
    ``K ||grad_2 f||^2``, where K is the number of reports of the first cohort S_1. Because S_1 provides K, dropped
    reports of either cohort do not change the size of the step.

    The divisor has no absolute values, unlike eq. 13. After `Alignment` the weights sum to
    ``||grad_1 f||^2 / ||grad_2 f||^2``, so a small gradient of S_2 makes a large step. A divisor of zero makes all
    weights zero, which leaves the model unchanged.

    Args:
        by_examples: whether to weight clients of S_2 by their number of examples. True if and only if `ByExamples` is
            in the chain, which weights S_1 so.

    Raises:
        ConfigurationError: if the selection has no second cohort, or if only one cohort is weighted by examples.

    Example:
        >>> import turnout as to
        >>> to.folb_two_set().weighting
        (Alignment(psi=0.0), DivideBySecondCohort(by_examples=False))

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    by_examples: bool = False

    def fits(self, algorithm: Slots) -> None:
        """Raise an error unless there is a second cohort, weighted in the same way as the first."""
        _asks_for_gradients(self, algorithm, "the gradients of a second cohort")
        if any(isinstance(piece, ByExamples) for piece in algorithm.weighting) != self.by_examples:
            one, other = ("second", "first") if self.by_examples else ("first", "second")
            raise ConfigurationError(
                f"the {one} cohort is weighted by examples and the {other} is not, so weights would sum to a number of "
                "examples or its inverse: write ByExamples() and DivideBySecondCohort(by_examples=True), or neither"
            )

    def apply(self, weights: Weights, report: Report, version: int, state: State, federation: Federation) -> WithState:
        """Return the weights divided by the alignment of the second cohort with itself, and the state."""
        assert report.measured is not None
        if not len(report.measured):
            return torch.zeros_like(weights), state
        mean = mean_gradient(report.measured, _counts(report.measured, self.by_examples, weights))
        total = _counts(report, self.by_examples, weights).sum() * mean.dot(mean)
        return (weights / total).where(total != 0, 0.0), state


def _counts(report: Report, by_examples: bool, like: torch.Tensor) -> Weights:
    """Return the weight of each report before alignment: its number of examples, or 1."""
    counts = report.num_examples if by_examples else np.ones(len(report))
    return to_device(counts, like.device, like.dtype)


def mean_gradient(report: Report, weights: Weights) -> torch.Tensor:
    """Return the weighted mean gradient at the received model (eq. 10), float64 ``[P]``; zero if the weights sum to zero."""
    total = weights.sum()
    # Sum before dividing, so that opposite gradients sum to exactly zero and not to a rounding error.
    return (Updates.of(report.seen["start_gradient"]).weighted_sum(weights) / total).where(total != 0, 0.0)


def _asks_for_gradients(piece: Weighting, algorithm: Slots, what: str) -> None:
    """Raise an error unless the selection measures gradients before the round."""
    if "start_gradient" not in {name for m in algorithm.selection.measurements for name in m.gives}:
        raise ConfigurationError(
            f"{type(piece).__name__} needs {what}, and {type(algorithm.selection).__name__} asks no client for gradients "
            "before the round: use the selection TwoCohorts() or ByAlignment()"
        )
