"""Select all available clients, or some at random: a cohort of fixed size, independently, or with replacement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.base import Enlargeable, Selection, TakesAll, enlarged_size
from turnout.core.candidates import Candidates
from turnout.core.random import fold, stream, uniform
from turnout.core.ranges import Share
from turnout.pieces.local.measurements import StartGradient
from turnout.pieces.selection.draws import first_available, with_replacement
from turnout.pieces.selection.fixed_size import FixedSize, Size, size_of


@dataclass(frozen=True)
class AllAvailable(TakesAll, Enlargeable, name="all_available"):
    """Select all available clients.

    The availability of all N clients is looked up, since the size of the cohort grows with N anyway.

    Example:
        >>> from turnout.base.trial import select
        >>> select(AllAvailable(), num_clients=5)
        [0, 1, 2, 3, 4]
    """

    needs_rounds = None

    def enlarged(self, factor: float) -> AllAvailable:
        """Return the same selection, which is already the largest."""
        return self

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return all available clients, ascending, int64 ``[B]``."""
        return candidates.everyone()


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
class Poisson(Selection, name="poisson"):
    """Select each available client with one probability, independently of the others (Poisson sampling).

    A cohort may be empty. Differential privacy has the tightest accounting with this sampling: see
    ``PrivateSum(sampling_rate=...)``.

    Args:
        rate: probability of each client, in (0, 1].

    Raises:
        ConfigurationError: if `rate` is outside (0, 1].

    Example:
        >>> from turnout.base.trial import select
        >>> select(Poisson(0.05)), select(Poisson(0.05), round=1)
        ([12, 29, 32, 43, 46, 53, 63, 73], [26, 79])
    """

    rate: Share = 0.1

    def select(self, candidates: Candidates) -> np.ndarray:
        """Return the cohort, ascending, int64 ``[B]``."""
        everyone = np.arange(candidates.num_clients)
        key = stream("selection by coins", candidates.seed, candidates.round)
        drawn = everyone[uniform(fold(key, everyone)) < self.rate]
        return drawn[candidates.available(drawn)]


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
