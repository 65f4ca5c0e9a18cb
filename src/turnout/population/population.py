"""Who the clients are, beside the data they hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnout.core.checks import ConfigurationError
from turnout.population.availability import Availability
from turnout.population.everyone import Everyone


@dataclass(frozen=True)
class Population:
    """How the clients of an experiment behave.

    Attributes:
        availability: in which rounds each of them is there.

    Raises:
        ConfigurationError: for an availability that is none.
    """

    availability: Availability = field(default_factory=Everyone)

    def __post_init__(self) -> None:
        if not isinstance(self.availability, Availability):
            given = self.availability
            hint = f": write {given.__name__}()" if isinstance(given, type) else ", such as Markov(mean=0.1)"
            raise ConfigurationError(f"availability: got {given!r}, needed an availability{hint}")
