"""Select clients uniformly with replacement; a client that is drawn twice counts twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.base import Selection
from turnout.core.candidates import Candidates
from turnout.pieces.local.measurements import StartGradient
from turnout.pieces.selection.draws import with_replacement
from turnout.pieces.selection.fixed_size import Size, size_of


@dataclass(frozen=True)
class WithReplacement(Selection, name="with_replacement"):
    """Select `cohort_size` clients independently and uniformly, with replacement (FedNu's S_t in FOLB, Algorithm 1).

    A client that is drawn twice counts twice. The cohort is empty if no client is available. The cost is about
    cohort_size / (fraction available) queries of availability, whatever the number of clients.

    Args:
        cohort_size: number of draws in a round (K), >= 1; it may exceed the number of clients.

    Raises:
        ConfigurationError: if `cohort_size` is not a positive integer.

    Example:
        Three draws from two clients:

        >>> from turnout.base.trial import select
        >>> select(WithReplacement(3), num_clients=2)
        [0, 1, 1]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    repeats = True

    cohort_size: Size = 10

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the draws, ascending, int64 ``[K]``."""
        return with_replacement(candidates, size_of(self.cohort_size, candidates.num_clients), "selection")


@dataclass(frozen=True)
class TwoCohorts(Selection, name="two_cohorts"):
    """Select two independent cohorts with replacement: S_1 trains, S_2 only sends gradients (FOLB, Algorithm 2).

    Draws are uniform over the available clients. Use it with `DivideBySecondCohort`.

    Args:
        cohort_size: number of draws for each of the two cohorts (K), >= 1.

    Raises:
        ConfigurationError: if `cohort_size` is not a positive integer.

    Example:
        >>> from turnout.base.trial import select
        >>> select(TwoCohorts(3), num_clients=2)
        [0, 1, 1]

    Reference: Nguyen et al., "Fast-convergent federated learning", IEEE JSAC 2021.
    """

    repeats = True
    measurements = (StartGradient(),)

    cohort_size: Size = 10

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the draws of S_1, ascending, int64 ``[K]``."""
        return with_replacement(candidates, size_of(self.cohort_size, candidates.num_clients), "selection")

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the draws of S_2, ascending, int64 ``[K]``."""
        return with_replacement(candidates, size_of(self.cohort_size, candidates.num_clients), "second cohort")
