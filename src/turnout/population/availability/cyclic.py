"""Model clients that are available in the same part of every cycle, like devices that charge at night."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turnout.core.checks import count, refuse
from turnout.core.random import below, fold, stream
from turnout.population.availability.base import BoundAvailability
from turnout.population.availability.rates import RatedAvailability, mapped


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

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundCyclic:
        """Fit the pattern to N clients."""
        nominal = self.client_rates(num_clients, label_counts, seed)
        rates = mapped(
            lambda p: np.where(p > 0, np.clip(np.rint(self.period * p), 1, self.period), 0) / self.period, nominal
        )
        return BoundCyclic(num_clients, rates, self.period, self.authors_phase, stream("availability", seed))


@dataclass(frozen=True, eq=False)
class BoundCyclic(BoundAvailability):
    """`Cyclic` bound to N clients."""

    rates: np.ndarray
    period: int
    authors_phase: bool
    key: int

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the availability of `clients` in `round`, bool ``[B]``."""
        on = np.rint(self.rates[clients] * self.period).astype(np.int64)
        first = below(fold(self.key, clients), self.period - on if self.authors_phase else self.period)
        return (round - first) % self.period < on
