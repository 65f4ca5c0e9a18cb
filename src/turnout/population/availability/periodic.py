"""Model clients that are available in turn: in a part of a cycle of their own, or in a fixed order."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count, refuse
from turnout.core.random import below, fold, generator, stream
from turnout.core.ranges import Count, Probability
from turnout.population.availability.base import Availability, RatedFunction
from turnout.population.availability.rates import LabelCorrelation, RatedAvailability, mapped, rank_by_labels


@dataclass(frozen=True)
class Cyclic(RatedAvailability, name="cyclic"):
    """Each client is available in the first `on` rounds of its own cycle, which starts at a random round of the period.

    `on` is period * p_n rounded (halves to even), at least 1, at most the period; 0 if p_n = 0. The rates of a run are the
    realized on / period. A client with on = period is always available; the authors' code gives it one round off and a longer
    period.

    Attributes:
        period: rounds of a cycle; 100 in the paper.
        authors_phase: False starts cycles at a round uniform on the whole period, so that the first rounds are
            like all others. True starts them as the authors' code does, in contrast to the text of the paper: all clients
            start absent, with a remaining absence uniform on {0, ..., period - on - 1}, so that few are available in the
            first rounds.

    The other options are those of `RatedAvailability`.

    Raises:
        ConfigurationError: if a period is below 2, and as `RatedAvailability` does.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Cyclic(mean=0.5, period=4).bind(num_clients=4)
        >>> [bound.available(np.arange(4), round).astype(int).tolist() for round in range(4)]
        [[0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 1], [1, 1, 1, 0]]

    Reference: Wang and Ji, ICLR 2024, appendix C.6.1.
    """

    period: int = 100
    authors_phase: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        count("period", self.period, least=2, instead="A period of 1 is Everyone()")
        if self.period >= 2**31:
            raise refuse("period", given=self.period, needed="less than 2**31 rounds")

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> RatedFunction:
        """Fit the pattern to N clients."""
        nominal = self.client_rates(num_clients, label_counts, seed)
        rates = mapped(
            lambda p: np.where(p > 0, np.clip(np.rint(self.period * p), 1, self.period), 0) / self.period, nominal
        )
        key = stream("availability", seed)

        def available(clients: np.ndarray, round: int) -> np.ndarray:
            on = np.rint(rates[clients] * self.period).astype(np.int64)
            first = below(fold(key, clients), self.period - on if self.authors_phase else self.period)
            return (round - first) % self.period < on

        return RatedFunction(num_clients, rates, available)


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

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> RatedFunction:
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

        def available(clients: np.ndarray, round: int) -> np.ndarray:
            return (place[clients] - round * step % num_clients) % num_clients < self.size

        return RatedFunction(num_clients, rates, available)
