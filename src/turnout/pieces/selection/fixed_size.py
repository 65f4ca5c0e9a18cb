"""Select cohorts of fixed size uniformly at random, with and without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from turnout.base import Enlargeable, FixedCohort, Selection, enlarged_size
from turnout.core.candidates import Candidates
from turnout.core.checks import count, is_finite, refuse
from turnout.pieces.local.measurements import StartGradient
from turnout.pieces.selection.draws import first_available, with_replacement


class AtMost(int):
    """A default size of a cohort, which becomes that of the federation where there are fewer clients."""


TEN = AtMost(10)
"""The default size of a cohort."""

Size = int | float | None
"""The size of a cohort: a number of clients, a share of all clients such as 0.1, or None for all of them."""


def check_size(size: Any) -> None:
    """Raise an error for a value that is not a size of a cohort."""
    if size is None or (isinstance(size, float) and is_finite(size) and 0.0 < size <= 1.0):
        return
    if isinstance(size, float):
        raise refuse(
            "cohort_size",
            given=size,
            needed="a whole number >= 1, a share of the clients, 0 < share <= 1, or None for all clients",
        )
    count("cohort_size", size, instead="Write a share such as 0.1 for a tenth of the clients, or None for all clients")


def size_of(size: Size, num_clients: int) -> int:
    """Return the number of clients of a cohort in a federation.

    >>> size_of(3, 20), size_of(0.1, 25), size_of(0.01, 20), size_of(None, 20), size_of(TEN, 6)
    (3, 2, 1, 20, 6)
    """
    if size is None:
        return num_clients
    if isinstance(size, float):
        return max(1, round(size * num_clients))
    return min(size, num_clients) if isinstance(size, AtMost) else size


@dataclass(frozen=True)
class FixedSize(Selection, FixedCohort):
    """Select `cohort_size` of the available clients, or all of them if fewer are available.

    Args:
        cohort_size: number of clients in a round, from 1 to the number of clients; a share of the clients, such as 0.1; or
            None for all clients. The default is 10, or all clients if there are fewer.

    Raises:
        ConfigurationError: if `cohort_size` is none of these, or exceeds the number of clients.
    """

    cohort_size: Size = TEN

    def __post_init__(self) -> None:
        check_size(self.cohort_size)

    def size(self, num_clients: int) -> int:
        """Return the number of clients in a round."""
        return size_of(self.cohort_size, num_clients)


@dataclass(frozen=True)
class Uniform(FixedSize, Enlargeable, name="uniform"):
    """Select `cohort_size` of the available clients uniformly at random without replacement, or all if fewer are available.

    Clients are asked for their availability in a random order, a function of (seed, round) alone, until enough are
    available. The cost is about cohort_size / (fraction available) queries, whatever the number of clients.

    Args:
        cohort_size: number of clients in a round, from 1 to the number of clients; a share of the clients, such as 0.1; or
            None for all clients. The default is 10, or all clients if there are fewer.

    Raises:
        ConfigurationError: if `cohort_size` is none of these, or exceeds the number of clients.

    Example:
        >>> import numpy as np, turnout as to
        >>> from turnout.core.candidates import Candidates
        >>> everyone = lambda clients: np.ones(len(clients), dtype=bool)
        >>> to.selection.Uniform(3).select(Candidates(everyone, num_clients=100, round=0, seed=0)).tolist()
        [1, 65, 76]
    """

    def enlarged(self, factor: float) -> Uniform:
        """Return the selection of ``cohort_size * factor`` clients, rounded up."""
        size = self.cohort_size
        if isinstance(size, float):
            return Uniform(size * factor if size * factor < 1.0 else None)
        return self if size is None else Uniform(type(size)(enlarged_size(size, factor)))

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        return np.sort(first_available(candidates, self.size(candidates.num_clients), candidates.num_clients))


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

    def __post_init__(self) -> None:
        check_size(self.cohort_size)

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

    def __post_init__(self) -> None:
        check_size(self.cohort_size)

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the draws of S_1, ascending, int64 ``[K]``."""
        return with_replacement(candidates, size_of(self.cohort_size, candidates.num_clients), "selection")

    def measuring(self, candidates: Candidates) -> np.ndarray:
        """Return the draws of S_2, ascending, int64 ``[K]``."""
        return with_replacement(candidates, size_of(self.cohort_size, candidates.num_clients), "second cohort")
