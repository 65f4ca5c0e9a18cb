"""Choose a cohort of fixed size uniformly at random."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count, refuse
from turnout.core.random import stream
from turnout.core.types import Candidates
from turnout.pieces.base import Selection, enlarged_size
from turnout.pieces.selection.random_order import RandomOrder


@dataclass(frozen=True)
class Uniform(Selection, name="uniform"):
    """Choose `cohort_size` of the available clients uniformly at random, or all if there are fewer.

    Clients are asked in a random order, which is a function of (seed, round) alone, until enough are there. This
    costs about cohort_size / (fraction available) questions, however many clients there are.

    Attributes:
        cohort_size: clients in a round; at most the number of clients.

    Raises:
        ConfigurationError: for a cohort that is empty or larger than the federation.

    Example:
        >>> import numpy as np, turnout as to
        >>> from turnout.core.types import Candidates
        >>> everyone = lambda clients: np.ones(len(clients), dtype=bool)
        >>> to.selection.Uniform(3).select(Candidates(everyone, num_clients=100, round=0, seed=0)).tolist()
        [1, 65, 76]
    """

    cohort_size: int = 10

    def __post_init__(self) -> None:
        count("cohort_size", self.cohort_size)

    def check(self, num_clients: int) -> None:
        """Refuse fewer clients than a cohort has."""
        if self.cohort_size > num_clients:
            raise refuse(
                "cohort_size",
                given=self.cohort_size,
                needed=f"at most the number of clients, {num_clients}",
                instead=f"Write cohort_size={num_clients}, or AllAvailable() to take everyone who is there",
            )

    def enlarged(self, factor: float) -> Uniform:
        """Return the selection of ``cohort_size * factor`` clients, rounded up."""
        return Uniform(enlarged_size(self.cohort_size, factor))

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        return np.sort(first_available(candidates, self.cohort_size, candidates.num_clients))


def first_available(candidates: Candidates, size: int, most: int) -> np.ndarray:
    """Return the first clients in a random order who are available, int64 ``[B]``: at most `size`.

    Fewer are returned if there are no more among the first `most` or so of the order.
    """
    num_clients = candidates.num_clients
    order = RandomOrder(stream("selection", candidates.seed, candidates.round), num_clients)
    chosen = [np.empty(0, dtype=np.int64)]
    num_tried, num_present, step = 0, 0, 2 * size
    while num_present < size and num_tried < min(most, num_clients):
        clients = order.take(min(step, max(most - num_tried, 1)))
        here = clients[candidates.available(clients)]
        chosen.append(here)
        num_tried, num_present = num_tried + len(clients), num_present + len(here)
        # Enough at the rate seen so far, with two standard deviations to spare: a further query costs more than
        # a longer one. How the order is cut does not change the cohort.
        missing = max(size - num_present, 0)
        step = math.ceil((missing + 2 * math.sqrt(missing)) * (num_tried + 1) / (num_present + 1))
    return np.concatenate(chosen)[:size]
