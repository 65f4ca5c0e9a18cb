"""Model populations that grow or shrink: clients arrive during a run, or leave it for good."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from turnout.core.checks import ConfigurationError, count
from turnout.core.random import fold, stream, uniform
from turnout.core.ranges import Probability
from turnout.population.availability.base import BoundAvailability, RatedFunction
from turnout.population.availability.independent import Bernoulli
from turnout.population.availability.rates import RatedAvailability


@dataclass(frozen=True)
class Arrivals(RatedAvailability, name="arrivals"):
    """Clients arrive during a run; from then on each is available with probability p_n in every round.

    A fraction `initial` of the clients is there from round 0. The others arrive in a round drawn uniformly from
    ``{first, ..., last - 1}``. The rates of a run are the p_n, which hold after the arrival.

    Attributes:
        initial: expected fraction of clients that are there from the start, 0 to 1.
        first: first round in which a client may arrive.
        last: round by which all clients have arrived.

    The other options are those of `RatedAvailability`; its `mean` is 1/2 by default.

    Raises:
        ConfigurationError: if `last` is not above `first`, and as `RatedAvailability` does.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Arrivals(mean=1.0, initial=0.25, last=8).bind(num_clients=6)
        >>> [bound.available(np.arange(6), round).astype(int).tolist() for round in (0, 3, 8)]
        [[0, 1, 0, 1, 0, 0], [1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1]]
    """

    mean: float = 0.5
    initial: Probability = 0.3
    first: int = 0
    last: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_window(self.first, self.last)

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundAvailability:
        """Fit the pattern to N clients."""
        return _while_there(self, self.initial, num_clients, label_counts, seed)


@dataclass(frozen=True)
class Departures(RatedAvailability, name="departures"):
    """Clients leave a run for good; until then each is available with probability p_n in every round.

    A fraction `remaining` of the clients never leaves. The others leave before a round drawn uniformly from
    ``{first, ..., last - 1}``. The rates of a run are unknown, because the long-run rate of a client that leaves is 0; rules
    that need rates take them as an option.

    Attributes:
        remaining: expected fraction of clients that never leave, 0 to 1.
        first: first round from which a client may be away.
        last: round by which all clients that leave have left.

    The other options are those of `RatedAvailability`; its `mean` is 1/2 by default.

    Raises:
        ConfigurationError: if `last` is not above `first`, and as `RatedAvailability` does.

    Example:
        >>> import numpy as np, turnout as to
        >>> bound = to.availability.Departures(mean=1.0, remaining=0.25, last=8).bind(num_clients=6)
        >>> [bound.available(np.arange(6), round).astype(int).tolist() for round in (0, 3, 8)]
        [[1, 1, 1, 0, 1, 1], [0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 0, 0]]
    """

    mean: float = 0.5
    remaining: Probability = 0.3
    first: int = 0
    last: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_window(self.first, self.last)

    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundAvailability:
        """Fit the pattern to N clients."""
        return replace(_while_there(self, self.remaining, num_clients, label_counts, seed), rates=None)


def _check_window(first: int, last: int) -> None:
    """Raise an error for an empty window of rounds."""
    count("first", first, least=0)
    count("last", last)
    if last <= first:
        raise ConfigurationError(f"last: got {last}, needed more than first ({first}): write last={first + 100}")


def _while_there(
    pattern: Arrivals | Departures, whole: float, num_clients: int, label_counts: np.ndarray | None, seed: int
) -> RatedFunction:
    """Fit a pattern to N clients, of which a fraction `whole` is there in all rounds."""
    rated = Bernoulli(pattern.mean, pattern.correlated_with_labels, pattern.floor, pattern.rates)
    bound, key = rated.bind(num_clients, label_counts, seed), stream("stay", seed)

    def available(clients: np.ndarray, round: int) -> np.ndarray:
        drawn = uniform(fold(key, clients))
        # One number decides both: below `whole` the client is always there, above it gives the round of the change.
        share = (drawn - whole) / (1.0 - whole) if whole < 1.0 else np.zeros(len(clients))
        change = pattern.first + np.floor(share * (pattern.last - pattern.first)).astype(np.int64)
        present = round < change if isinstance(pattern, Departures) else round >= change
        return ((drawn < whole) | present) & bound.available(clients, round)

    return RatedFunction(num_clients, bound.rates, available)
