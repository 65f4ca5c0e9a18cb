"""Draw clients with replacement; a client that is drawn twice counts twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count
from turnout.core.random import fold, stream, uniform
from turnout.core.types import Candidates
from turnout.pieces.base import Selection
from turnout.pieces.local.measurements import StartGradient


@dataclass(frozen=True)
class WithReplacement(Selection, name="with_replacement"):
    """Draw `cohort_size` clients independently and uniformly from those available; none if nobody is.

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
        return uniform_draws(candidates, self.cohort_size, "selection")


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
        return uniform_draws(candidates, self.cohort_size, "selection")

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the draws of S_2, ascending, int64 ``[K]``."""
        return uniform_draws(candidates, self.cohort_size, "second cohort")


def uniform_draws(candidates: Candidates, size: int, purpose: str) -> np.ndarray:
    """Return `size` independent draws, uniform over those available, ascending; none if nobody is."""
    key, num_clients = stream(purpose, candidates.seed, candidates.round), candidates.num_clients
    present, drawn, step = np.empty(0, dtype=np.int64), 0, 2 * size
    while len(present) < size and drawn < 4 * num_clients:
        clients = (uniform(fold(key, np.arange(drawn, drawn + step))) * num_clients).astype(np.int64)
        present = np.concatenate([present, clients[candidates.available(clients)]])
        drawn, step = drawn + step, 2 * step
    if len(present) < size:  # hardly anyone is there: ask everyone, and draw from those who are
        everyone = candidates.everyone()
        if not len(everyone):
            return everyone
        more = uniform(fold(key, np.arange(drawn, drawn + size))) * len(everyone)
        present = np.concatenate([present, everyone[more.astype(np.int64)]])
    return np.sort(present[:size])
