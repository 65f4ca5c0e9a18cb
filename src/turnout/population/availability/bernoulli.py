"""Model clients that are available at random, independently in every round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.random import fold, stream, uniform
from turnout.population.availability.base import BoundAvailability
from turnout.population.availability.rates import RatedAvailability


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
