"""Model clients that are always available."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count
from turnout.population.availability.base import Availability, BoundAvailability
from turnout.population.availability.rates import everyone_at


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
