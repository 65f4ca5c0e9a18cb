"""Model clients that take turns in a fixed order."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count, refuse
from turnout.core.random import generator
from turnout.core.ranges import Count, Probability
from turnout.population.availability.base import Availability, BoundAvailability
from turnout.population.availability.rates import LabelCorrelation, rank_by_labels


@dataclass(frozen=True)
class RoundRobin(Availability, name="round_robin"):
    """Clients take turns: in each round the next `size` clients of a fixed cyclic order are available.

    Round t has the clients at the places ``t s, ..., t s + size - 1`` of the order, modulo N, where
    ``s = size - round(overlap * size)`` is at least 1. So a fraction `overlap` of the clients of a round was there in the
    round before. The order is random, or that of `correlated_with_labels`, in which the clients of one round hold similar
    labels.

    Attributes:
        size: number of clients that are available in a round, at most N.
        overlap: fraction of the clients that stay for the next round, 0 to 1.
        correlated_with_labels: None is a random order. A number is the concentration alpha_p of `label_correlated_rates`, and
            several are its q, one per class: clients are ordered by their rate by labels.

    Raises:
        ConfigurationError: if `size` exceeds the number of clients, or labels are missing.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.RoundRobin(size=2, overlap=0.5).bind(num_clients=4)
        >>> [bound.available(np.arange(4), round).astype(int).tolist() for round in range(4)]
        [[0, 0, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    """

    size: Count = 10
    overlap: Probability = 0.0
    correlated_with_labels: LabelCorrelation | None = None

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundRoundRobin:
        """Fit the pattern to N clients."""
        count("num_clients", num_clients)
        if self.size > num_clients:
            raise refuse("size", given=self.size, needed=f"at most the number of clients, {num_clients}")
        if self.correlated_with_labels is None:
            place = generator("round robin", seed).permutation(num_clients)
        else:
            place = rank_by_labels(label_counts, num_clients, self.correlated_with_labels, seed)
        step = max(1, self.size - round(self.overlap * self.size))
        # Places move by multiples of g, so that a client is in the window for each place of its class modulo g.
        grid = math.gcd(step, num_clients)
        rates = (self.size - place % grid + grid - 1) // grid * (grid / num_clients)
        return BoundRoundRobin(num_clients, rates, place, self.size, step)


@dataclass(frozen=True, eq=False)
class BoundRoundRobin(BoundAvailability):
    """`RoundRobin` bound to N clients; `place` is the place of each client in the order, int64 ``[N]``."""

    rates: np.ndarray
    place: np.ndarray
    size: int
    step: int

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the availability of `clients` in `round`, bool ``[B]``."""
        return (self.place[clients] - round * self.step % self.num_clients) % self.num_clients < self.size
