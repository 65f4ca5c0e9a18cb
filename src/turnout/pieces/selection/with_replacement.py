"""Draw clients uniformly with replacement; a client that is drawn twice counts twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count
from turnout.core.types import Candidates
from turnout.pieces.base import Selection
from turnout.pieces.local.measurements import StartGradient
from turnout.pieces.selection.draws import with_replacement


@dataclass(frozen=True)
class WithReplacement(Selection, name="with_replacement"):
    """Draw `cohort_size` clients independently and uniformly from the available ones; none if none is.

    FedNu's S_t (FOLB, Algorithm 1) with the uniform distribution. It costs about cohort_size / (fraction available)
    questions, however many clients there are.

    Args:
        cohort_size: draws in a round (K); may exceed the number of clients.

    Example:
        Three draws of two clients:

        >>> from turnout.pieces.base.trial import select
        >>> select(WithReplacement(3), num_clients=2)
        [0, 1, 1]
    """

    repeats = True

    cohort_size: int = 10

    def __post_init__(self) -> None:
        count("cohort_size", self.cohort_size)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the draws, ascending, int64 ``[K]``."""
        return with_replacement(candidates, self.cohort_size, "selection")


@dataclass(frozen=True)
class TwoCohorts(Selection, name="two_cohorts"):
    """Draw two independent cohorts with replacement: S_1 trains, S_2 only sends gradients (FOLB, Algorithm 2).

    Args:
        cohort_size: draws for each of the two (K).

    Example:
        >>> from turnout.pieces.base.trial import select
        >>> select(TwoCohorts(3), num_clients=2)
        [0, 1, 1]
    """

    repeats = True
    measurements = (StartGradient(),)

    cohort_size: int = 10

    def __post_init__(self) -> None:
        count("cohort_size", self.cohort_size)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the draws of S_1, ascending, int64 ``[K]``."""
        return with_replacement(candidates, self.cohort_size, "selection")

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the draws of S_2, ascending, int64 ``[K]``."""
        return with_replacement(candidates, self.cohort_size, "second cohort")
