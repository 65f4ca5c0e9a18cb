"""Select clients in proportion to a score of their gradients, which all available clients measure first (FedNu)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from turnout.base import Selection
from turnout.core.candidates import Candidates
from turnout.core.device import to_device
from turnout.core.random import fold, stream, uniform
from turnout.core.ranges import NotNegative
from turnout.core.types import Report
from turnout.core.updates import Updates
from turnout.pieces.local.measurements import GradientNorm, Inexactness, StartGradient
from turnout.pieces.selection.fixed_size import Size, size_of


class _ByScore(Selection):
    """Select `cohort_size` clients with replacement, with probabilities proportional to scores >= 0.

    If all scores are zero, draws are uniform. Reports with NaN or infinity are left out. A score that is negative or
    not finite, which no honest client has, counts as zero.

    With `by_examples`, the objective is ``f = sum_k p_k F_k`` with ``p_k = n_k / n`` ("the approach we take
    throughout", section II-A of the paper), where n_k is the number of examples of client k and n that of all clients.
    Then ``grad f`` is the mean of the gradients weighted by examples. With `scores_by_examples` as well, scores are
    multiplied by n_k, so that the two halves of a divided client together are selected as often as the whole. Without
    it, scores are those of eq. 7 and 16.
    """

    repeats = True

    cohort_size: Size
    by_examples: bool
    scores_by_examples: bool

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return all available clients, ascending, int64."""
        return candidates.everyone()

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the selected clients, ascending, int64 ``[K]``; none if no client is available."""
        measured = candidates.screened()
        if not len(measured):
            return measured.client
        scores = self.scores(measured)
        scores = np.where(np.isfinite(scores) & (scores > 0), scores, 0.0)
        scores = scores if scores.any() else np.ones_like(scores)
        # Divide by the largest score first, so that the sum does not overflow.
        edges = np.cumsum(scores / scores.max())
        key = stream("selection", candidates.seed, candidates.round)
        draws = uniform(fold(key, np.arange(size_of(self.cohort_size, candidates.num_clients))))
        chosen = np.searchsorted(edges, draws * edges[-1], side="right")
        return np.sort(measured.client[chosen])

    def scores(self, measured: Report) -> np.ndarray:
        """Return the scores, float64 ``[B]``, times the number of examples if the options say so."""
        score = self.score(measured)
        return score * measured.num_examples if self.by_examples and self.scores_by_examples else score

    @abstractmethod
    def score(self, measured: Report) -> np.ndarray:
        """Return the score of each client without its number of examples, float64 ``[B]``."""

    def mean_gradient(self, measured: Report) -> torch.Tensor:
        """Return ``grad f``, float64 ``[P]``."""
        gradient = measured.seen["start_gradient"]
        if not self.by_examples:
            return Updates.of(gradient).mean()
        sizes = to_device(measured.num_examples, gradient.device, torch.float64)
        return Updates.of(gradient).weighted_sum(sizes) / sizes.sum()


@dataclass(frozen=True)
class ByAlignment(_ByScore, name="by_alignment"):
    """Select clients in proportion to their gradient's inner product with the global one (FOLB, eq. 7, naive algorithm 1).

    The `cohort_size` draws are independent, with replacement and with the LB-near-optimal probabilities
    ``P_k ~ |<grad f, grad F_k>|``. Here ``grad F_k`` is the gradient of client k at the present model, over all of its
    examples, and ``grad f`` is the mean gradient of all available clients. So every available client sends a vector
    ``[P]`` before each round.

    Args:
        cohort_size: number of draws in a round (K), >= 1.
        by_examples: whether to weight clients by their number of examples, in ``grad f`` and in their probabilities.
        scores_by_examples: whether `by_examples` also applies to the probabilities. False leaves examples out of these,
            as in eq. 7.

    Raises:
        ConfigurationError: if `cohort_size` is not a positive integer.

    Example:
        The gradient of client 2 is zero, so it is never selected:

        >>> from turnout.base.trial import report, select
        >>> measured = report([[]] * 3, start_gradient=[[1.0, 0.0], [3.0, 0.0], [0.0, 0.0]])
        >>> select(ByAlignment(cohort_size=4), measured=measured)
        [1, 1, 1, 1]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    measurements = (StartGradient(),)

    cohort_size: Size = 10
    by_examples: bool = False
    scores_by_examples: bool = True

    def score(self, measured: Report) -> np.ndarray:
        """Return the absolute inner products with the mean gradient, float64 ``[B]``."""
        gradient = measured.seen["start_gradient"]
        return Updates.of(gradient).inner(self.mean_gradient(measured)).abs().cpu().numpy()


@dataclass(frozen=True)
class ByGradientNorm(_ByScore, name="by_gradient_norm"):
    """Select clients in proportion to the norm of their gradient (FOLB, naive algorithm 2).

    The `cohort_size` draws are independent, with replacement and with the probabilities ``P_k ~ ||grad F_k||``, an
    estimate of those of eq. 7. Here ``grad F_k`` is the gradient of client k at the present model, over all of its
    examples. Every available client sends one number before each round.

    Args:
        cohort_size: number of draws in a round (K), >= 1.
        by_examples: whether to weight clients by their number of examples.
        scores_by_examples: whether `by_examples` also applies to the probabilities. False leaves examples out of these,
            as in the paper.

    Raises:
        ConfigurationError: if `cohort_size` is not a positive integer.

    Example:
        >>> from turnout.base.trial import report, select
        >>> select(ByGradientNorm(cohort_size=4), measured=report([[]] * 3, start_gradient_norm=[0.0, 1.0, 3.0]))
        [2, 2, 2, 2]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    measurements = (GradientNorm(),)

    cohort_size: Size = 10
    by_examples: bool = False
    scores_by_examples: bool = True

    def score(self, measured: Report) -> np.ndarray:
        """Return the norms of the gradients, float64 ``[B]``."""
        return measured.seen["start_gradient_norm"].cpu().numpy()


@dataclass(frozen=True)
class ByAlignmentAndInexactness(_ByScore, name="by_alignment_and_inexactness"):
    """Select clients in proportion to the agreement of their gradient, less a penalty on inexactness (FOLB, eq. 16).

    The `cohort_size` draws are independent, with replacement and with the probabilities ``P_k ~ |I_k|``, where
    ``I_k = <grad f, grad F_k> - psi gamma_k ||grad f||^2``. Here ``grad F_k`` is the gradient of client k at the
    present model, ``grad f`` is the mean gradient of all available clients, and gamma_k is the inexactness of the
    client's solution of its local problem (see `Inexactness`).

    To know gamma_k, all available clients train before the cohort is selected. The paper names this cost as the reason
    for eq. 18, which avoids it (`Alignment`).

    Args:
        psi: penalty on inexactness, >= 0.
        cohort_size: number of draws in a round (K), >= 1.
        by_examples: whether to weight clients by their number of examples.
        scores_by_examples: whether `by_examples` also applies to the probabilities. False leaves examples out of these,
            as in the paper.

    Raises:
        ConfigurationError: if `psi` is negative, or if `cohort_size` is not a positive integer.

    Example:
        >>> from turnout.base.trial import report, select
        >>> measured = report([[]] * 2, start_gradient=[[1.0], [1.0]], inexactness=[1.0, 0.0])
        >>> select(ByAlignmentAndInexactness(psi=1.0, cohort_size=4), measured=measured)
        [1, 1, 1, 1]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    measurements = (StartGradient(), Inexactness())

    psi: NotNegative = 1.0
    cohort_size: Size = 10
    by_examples: bool = False
    scores_by_examples: bool = True

    def score(self, measured: Report) -> np.ndarray:
        """Return ``|I_k|``, float64 ``[B]``."""
        gradient = measured.seen["start_gradient"]
        mean = self.mean_gradient(measured)
        inexactness = measured.seen["inexactness"].double()
        scores = Updates.of(gradient).inner(mean) - self.psi * inexactness * mean.dot(mean)
        return scores.abs().cpu().numpy()
