"""Model clients that are available always, or at random in every round, at rates that may vary over time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import numpy as np

from turnout.core.checks import count, refuse
from turnout.core.random import fold, stream, uniform
from turnout.core.ranges import Probability
from turnout.population.availability.base import Availability, BoundAvailability, RatedFunction
from turnout.population.availability.rates import RatedAvailability, everyone_at, mapped


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

    def at(self, rates: np.ndarray, round: int) -> np.ndarray:
        """Return the probabilities of availability in `round`, ``[B]``, of clients with base rates `rates` ``[B]``."""
        return rates

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> RatedFunction:
        """Fit the pattern to N clients; the rates of a run are the p_n."""
        key, base = stream("availability", seed), self.client_rates(num_clients, label_counts, seed)

        def available(clients: np.ndarray, round: int) -> np.ndarray:
            return uniform(fold(key, clients, np.array([round]))) < self.at(base[clients], round)

        return RatedFunction(num_clients, base, available)


@dataclass(frozen=True)
class Modulated(Bernoulli):
    """Base class: each client is available with probability ``p_n f(t)`` in round t, independently of others.

    Attributes:
        period: rounds after which the rates repeat; 20 in the authors' code.

    The other options are those of `RatedAvailability`, which determines p_n.

    Raises:
        ConfigurationError: if a period is below 2, and as `RatedAvailability` does.
    """

    period: Annotated[int, partial(count, least=2, instead="Rates that stay the same are Bernoulli()")] = 20

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> RatedFunction:
        """Fit the pattern to N clients; the rates of a run are the means over a period."""
        bound = super().bind(num_clients, label_counts, seed)
        mean = mapped(lambda base: sum(self.at(base, round) for round in range(self.period)) / self.period, bound.rates)
        return replace(bound, rates=mean)


@dataclass(frozen=True)
class Sine(Modulated, name="sine"):
    """Rates follow a sine: ``f(t) = gamma sin(2 pi t / period) + 1 - gamma``.

    Attributes:
        gamma: amplitude; 0.3, 0.2 and 0.1 in the paper.

    The other options are those of `Modulated`.

    Raises:
        ConfigurationError: if gamma is outside [0, 0.5], at which a rate would be negative.

    >>> bound = Sine(mean=0.5, gamma=0.3).bind(3)
    >>> [float(p.round(3)) for p in bound.rates]  # over a period: 0.5 (1 - gamma)
    [0.35, 0.35, 0.35]

    Reference: Xiang et al., "Efficient federated learning against heterogeneous and non-stationary client unavailability",
    NeurIPS 2024, section 7; constants as in the authors' code.
    """

    gamma: Probability = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma > 0.5:
            raise refuse("gamma", given=self.gamma, needed="at most 0.5: a rate would fall below 0")

    def at(self, rates: np.ndarray, round: int) -> np.ndarray:
        """Return ``p_n f(t)``."""
        return rates * (self.gamma * np.sin(2 * np.pi * round / self.period) + 1 - self.gamma)


@dataclass(frozen=True)
class InterleavedSine(Sine, name="interleaved_sine"):
    """Rates follow a sine and are zero below a cutoff, so that clients with small rates have long absences.

    Attributes:
        cutoff: the least positive rate; 0.1 in the authors' code.

    The other options are those of `Sine`.

    Example:
        >>> import numpy as np, turnout as to
        >>> pattern = to.availability.InterleavedSine(gamma=0.4, period=4, cutoff=0.1)
        >>> [pattern.at(np.array([0.6, 0.2]), round).round(2).tolist() for round in range(4)]
        [[0.36, 0.12], [0.6, 0.2], [0.36, 0.12], [0.12, 0.0]]

    Reference: Xiang et al., NeurIPS 2024, section 7; constants as in the authors' code.
    """

    cutoff: Probability = 0.1

    def at(self, rates: np.ndarray, round: int) -> np.ndarray:
        """Return ``p_n f(t)`` if it is at least the cutoff, else 0."""
        current = super().at(rates, round)
        return np.where(current >= self.cutoff, current, 0.0)


@dataclass(frozen=True)
class Staircase(Modulated, name="staircase"):
    """Rates alternate: ``f(t) = 1`` in the first half of every period and `low` in the second.

    Attributes:
        low: factor of the second half; 0.4 in the authors' code.

    The other options are those of `Modulated`.

    Example:
        >>> import numpy as np, turnout as to
        >>> pattern = to.availability.Staircase(period=4, low=0.4)
        >>> [pattern.at(np.array([0.5]), round).tolist() for round in range(4)]
        [[0.5], [0.5], [0.2], [0.2]]

    Reference: Xiang et al., NeurIPS 2024, section 7; constants as in the authors' code.
    """

    low: Probability = 0.4

    def at(self, rates: np.ndarray, round: int) -> np.ndarray:
        """Return p_n, or ``low p_n``."""
        return rates if round % self.period < (self.period + 1) // 2 else rates * self.low
