"""Draw clients by their gradients, which all available clients measure first (FedNu)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from turnout.core.checks import count, not_negative
from turnout.core.device import to_device
from turnout.core.random import fold, stream, uniform
from turnout.core.types import Candidates, Report
from turnout.core.updates import Updates
from turnout.pieces.base import Selection
from turnout.pieces.local.measurements import GradientNorm, Inexactness, StartGradient


class _ByScore(Selection):
    """Draw `cohort_size` times with replacement, a client with a probability proportional to its score >= 0.

    Draws are uniform where all scores are zero. Reports with NaN or infinity are left out. Scores that overflow or are
    negative, which no honest client's are, count as zero.

    With `by_examples` the objective is ``f = sum_k p_k F_k``, ``p_k = n_k / n`` ("the approach we take throughout", section
    II-A), and ``grad f`` is the mean of gradients weighted by examples. With `scores_by_examples` as well, a client's score
    is multiplied by its number of examples, so that two halves of a client are drawn as often as the whole; without it,
    scores are those of eq. 7 and 16.
    """

    repeats = True

    cohort_size: int
    by_examples: bool
    scores_by_examples: bool

    def __post_init__(self) -> None:
        count("cohort_size", self.cohort_size)

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return all available clients."""
        return candidates.everyone()

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the draws, ascending, int64 ``[K]``; none if no client is available."""
        assert candidates.measured is not None
        measured, _ = candidates.measured.screened()
        if not len(measured):
            return measured.client
        scores = self.scores(measured)
        scores = np.where(np.isfinite(scores) & (scores > 0), scores, 0.0)
        scores = scores if scores.any() else np.ones_like(scores)
        # Divided by the largest first, because a sum of the largest numbers may overflow.
        edges = np.cumsum(scores / scores.max())
        draws = uniform(fold(stream("selection", candidates.seed, candidates.round), np.arange(self.cohort_size)))
        chosen = np.searchsorted(edges, draws * edges[-1], side="right")
        return np.sort(measured.client[chosen])

    def scores(self, measured: Report) -> np.ndarray:
        """Return the scores by which clients are drawn, float64 ``[B]``."""
        score = self.score(measured)
        return score * measured.num_examples if self.by_examples and self.scores_by_examples else score

    @abstractmethod
    def score(self, measured: Report) -> np.ndarray:
        """Return the score of each client without regard to its number of examples, float64 ``[B]``."""

    def mean_gradient(self, measured: Report) -> torch.Tensor:
        """Return ``grad f``, float64 ``[P]``."""
        gradient = measured.seen["start_gradient"]
        if not self.by_examples:
            return Updates.of(gradient).mean()
        sizes = to_device(measured.num_examples, gradient.device, torch.float64)
        return Updates.of(gradient).weighted_sum(sizes) / sizes.sum()


@dataclass(frozen=True)
class ByAlignment(_ByScore, name="by_alignment"):
    """Draw from the LB-near-optimal distribution ``P_k ~ |<grad f, grad F_k>|`` (FOLB, eq. 7; naive algorithm 1).

    ``grad f`` is the mean of the gradients of all available clients, each of whom sends a vector before each round.

    Args:
        cohort_size: draws in a round (K).
        by_examples: weigh clients by their examples, in ``grad f`` and in their probability.
        scores_by_examples: False leaves examples out of the probability, as in eq. 7.

    Example:
        The gradient of client 2 is zero, so that it is never drawn:

        >>> from turnout.pieces.base.trial import report, select
        >>> measured = report([[]] * 3, start_gradient=[[1.0, 0.0], [3.0, 0.0], [0.0, 0.0]])
        >>> select(ByAlignment(cohort_size=4), measured=measured)
        [1, 1, 1, 1]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    measurements = (StartGradient(),)

    cohort_size: int = 10
    by_examples: bool = False
    scores_by_examples: bool = True

    def score(self, measured: Report) -> np.ndarray:
        """Return absolute inner products with the mean gradient."""
        gradient = measured.seen["start_gradient"]
        return Updates.of(gradient).inner(self.mean_gradient(measured)).abs().cpu().numpy()


@dataclass(frozen=True)
class ByGradientNorm(_ByScore, name="by_gradient_norm"):
    """Draw from the norm-based estimate of eq. 7, ``P_k ~ ||grad F_k||`` (FOLB, naive algorithm 2).

    Each available client sends one number before each round.

    Args:
        cohort_size: draws in a round (K).
        by_examples: weigh clients by their examples.
        scores_by_examples: False leaves examples out of the probability, as in the paper.

    Example:
        >>> from turnout.pieces.base.trial import report, select
        >>> select(ByGradientNorm(cohort_size=4), measured=report([[]] * 3, start_gradient_norm=[0.0, 1.0, 3.0]))
        [2, 2, 2, 2]
    """

    measurements = (GradientNorm(),)

    cohort_size: int = 10
    by_examples: bool = False
    scores_by_examples: bool = True

    def score(self, measured: Report) -> np.ndarray:
        """Return norms of the gradients."""
        return measured.seen["start_gradient_norm"].cpu().numpy()


@dataclass(frozen=True)
class ByAlignmentAndInexactness(_ByScore, name="by_alignment_and_inexactness"):
    """Draw with ``P_k ~ |I_k|``, ``I_k = <grad f, grad F_k> - psi gamma_k ||grad f||^2`` (FOLB, eq. 16).

    gamma_k is the inexactness of the client's solution of its local problem, so all available clients train before the
    cohort is chosen. The paper names this cost as the reason for eq. 18, which does without.

    Args:
        psi: weight of the inexactness.
        cohort_size: draws in a round (K).
        by_examples: weigh clients by their examples.
        scores_by_examples: False leaves examples out of the probability, as in the paper.

    Example:
        >>> from turnout.pieces.base.trial import report, select
        >>> measured = report([[]] * 2, start_gradient=[[1.0], [1.0]], inexactness=[1.0, 0.0])
        >>> select(ByAlignmentAndInexactness(psi=1.0, cohort_size=4), measured=measured)
        [1, 1, 1, 1]
    """

    measurements = (StartGradient(), Inexactness())

    psi: float = 1.0
    cohort_size: int = 10
    by_examples: bool = False
    scores_by_examples: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative("psi", self.psi)

    def score(self, measured: Report) -> np.ndarray:
        """Return ``|I_k|``."""
        gradient = measured.seen["start_gradient"]
        mean = self.mean_gradient(measured)
        inexactness = measured.seen["inexactness"].double()
        scores = Updates.of(gradient).inner(mean) - self.psi * inexactness * mean.dot(mean)
        return scores.abs().cpu().numpy()
