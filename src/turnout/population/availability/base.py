"""When clients are there: the two base classes of availability, its options and what they become for a run.

Availability is a pure function of (seed, client, round). It is answered only for the clients one asks about, in any
order, as often as one likes, so a client who is not asked costs nothing and there is no state to save.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from turnout.core.checks import ConfigurationError
from turnout.core.registry import Family, Registered


@dataclass(frozen=True)
class Availability(Registered, ABC):
    """The options of a pattern of availability; `bind` makes it answer for the clients of one run."""

    family = Family("availability", "availability", ("turnout.population.availability",))

    @property
    def round_seconds(self) -> float | None:
        """Seconds that one of its rounds lasts, where it follows a clock; None where it counts rounds of any length."""
        return None

    @abstractmethod
    def bind(self, num_clients: int, label_counts: np.ndarray | None = None, seed: int = 0) -> BoundAvailability:
        """Fit the pattern to N clients.

        Args:
            num_clients: N.
            label_counts: training examples of each class at each client, ``[N, C]``; None if the data have no classes.
            seed: the run's seed.

        Raises:
            ConfigurationError: where the options do not fit the clients.
        """


def one_round_length(availability: Availability, seconds_per_round: float | None) -> float | None:
    """Return the seconds of a round of availability: those of the pattern itself, if it follows a clock, or those given.

    Raises:
        ConfigurationError: where both are given and differ, because a pattern would pass at the wrong speed.
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
        rates: p_n, the long-run fraction of rounds in which a client is there, float64 ``[N]``, read-only; None where
            it is unknown.
    """

    num_clients: int
    rates: np.ndarray | None

    @abstractmethod
    def available(self, clients: np.ndarray, round: int) -> np.ndarray:
        """Return whether each of `clients` (int64 ``[B]``, any order, repeats allowed) is there in `round`: bool ``[B]``."""
