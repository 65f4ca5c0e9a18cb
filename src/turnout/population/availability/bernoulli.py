"""Model clients that are always available, or at random, independently in every round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count
from turnout.core.random import fold, stream, uniform
from turnout.population.availability.base import Availability, BoundAvailability
from turnout.population.availability.rates import RatedAvailability, everyone_at


@dataclass(frozen=True)
class Everyone(Availability, name="everyone"):
    """Every client is available in every round: p_n = 1.

    Example:
        >>> import numpy as np, turnout as to
        >>> to.availability.Everyone().bind(num_clients=3).available(np.arange(3), round=0).tolist()
        [True, True, True]
    """

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundEveryone:
        """Fit the pattern to N clients; labels and seed are not used."""
        count("num_clients", num_clients)
        return BoundEveryone(num_clients, everyone_at(1.0, num_clients))


@dataclass(frozen=True, eq=False)
class BoundEveryone(BoundAvailability):
    """`Everyone` bound to N clients."""

    rates: np.ndarray

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return True for each of `clients`, bool ``[B]``."""
        return np.ones(len(clients), dtype=bool)


@dataclass(frozen=True)
class Bernoulli(RatedAvailability, name="bernoulli"):
    """Each client is available with probability p_n, independently of other clients and of other rounds.

    Options and errors are those of `RatedAvailability`.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Bernoulli(mean=0.5).bind(num_clients=6)
        >>> [bound.available(np.arange(6), round).astype(int).tolist() for round in range(3)]
        [[1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 1, 0], [0, 1, 1, 0, 1, 1]]

    Reference: Wang and Ji, ICLR 2024, appendix C.6.1.
    """

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundBernoulli:
        """Fit the pattern to N clients."""
        return BoundBernoulli(
            num_clients, self.client_rates(num_clients, label_counts, seed), stream("availability", seed)
        )


@dataclass(frozen=True, eq=False)
class BoundBernoulli(BoundAvailability):
    """`Bernoulli` bound to N clients."""

    rates: np.ndarray
    key: int

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the availability of `clients` in `round`, bool ``[B]``."""
        return uniform(fold(self.key, clients, np.array([round]))) < self.rates[clients]
