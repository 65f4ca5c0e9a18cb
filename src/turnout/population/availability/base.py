"""Define the base classes of availability: the options of a pattern, and the pattern bound to the clients of a run.

Availability is a pure function of (seed, client, round). It is computed only for the requested clients, in any order and
any number of times, so other clients cost nothing and there is no state to save.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.core.registry import Family, Registered


@dataclass(frozen=True)
class Availability(Registered, ABC):
    """Options of a pattern of availability; `bind` fits it to the clients of a run."""

    family = Family("availability", "availability", ("turnout.population.availability",))

    def __post_init__(self) -> None:
        """Make lists tuples, so that patterns with the same options are equal."""
        for name, value in vars(self).items():
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))

    @property
    def round_seconds(self) -> float | None:
        """Length of a round in seconds, for patterns that follow a clock; None for patterns that count rounds."""
        return None

    def of_clients(self, names: Sequence[str] | None) -> Availability:
        """Return the pattern for clients with these names; only patterns that name clients differ from themselves.

        Raises:
            DataError: if the pattern names other clients.
        """
        return self

    @abstractmethod
    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundAvailability:
        """Fit the pattern to N clients.

        Args:
            num_clients: N.
            label_counts: number of training examples of each class at each client, ``[N, C]``; None without classes.
            seed: seed of the run.

        Raises:
            ConfigurationError: if options do not fit the clients.
        """


def one_round_length(availability: Availability, seconds_per_round: float | None) -> float | None:
    """Return the length of a round of availability in seconds: that of the pattern if it follows a clock, or the argument.

    Raises:
        ConfigurationError: if both are set and differ, since the pattern would pass at the wrong speed.
    """
    length = availability.round_seconds
    if length is None or seconds_per_round is None:
        return seconds_per_round if length is None else length
    if length != seconds_per_round:
        name = type(availability).__name__
        raise ConfigurationError(
            f"seconds_per_round: got {seconds_per_round:g} beside {name}(seconds_per_round={length:g}), so that the pattern "
            f"would pass {length / seconds_per_round:.3g} times as fast as the clock: leave it out, and write "
            f"{name}(seconds_per_round={seconds_per_round:g}) where rounds are to be of that length"
        )
    return length


@dataclass(frozen=True, eq=False)
class BoundAvailability(ABC):
    """A pattern of availability for the N clients of one run.

    Attributes:
        num_clients: N.
        rates: p_n, the long-run fraction of rounds in which a client is available, float64 ``[N]``, read-only; None if
            unknown.
    """

    num_clients: int
    rates: np.ndarray | None

    def __post_init__(self) -> None:
        if self.rates is not None:
            self.rates.setflags(write=False)

    @abstractmethod
    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the availability of `clients` (int64 ``[B]``, any order, repeats allowed) in `round`, bool ``[B]``."""


@dataclass(frozen=True, eq=False)
class RatedFunction(BoundAvailability):
    """A pattern with known rates that is given by a function of clients and round, as `available` is."""

    rates: np.ndarray
    function: Callable[[np.ndarray, int], np.ndarray]

    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return the availability of `clients` in `round`, bool ``[B]``."""
        return self.function(clients, round)
