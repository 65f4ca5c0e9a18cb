"""Describe the clients of an experiment, apart from their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from turnout.core.checks import ConfigurationError, count
from turnout.core.earlier_names import takes_earlier_names
from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Positive
from turnout.population.availability.base import Availability, one_round_length
from turnout.population.availability.independent import Everyone
from turnout.population.behavior import Attack
from turnout.population.behavior.leaving import Dropout, Opting
from turnout.population.requirement import Requirement
from turnout.population.speed.durations import SpeedModel


@takes_earlier_names
@dataclass(frozen=True)
class Population(ExplainsArguments):
    """The clients of an experiment: availability, speed, requirements and behavior.

    Attributes:
        availability: availability of each client in each round.
        speed: durations of tasks; None simulates without a clock.
        dropout: dropout of clients during tasks; None is none.
        seconds_per_round: length of a round of `availability` on the clock, independent of server steps. None is the length
            of the pattern if it has one (`Flash`, `TimedTrace`, `Diurnal`); otherwise every server step begins a new round of
            availability.
        requirement: requirement of clients for a model, if a piece needs it; None is ``WarmUp()``.
        opting: rule by which clients leave if the model does not meet their requirement; None keeps all clients.
        behavior: attack by a part of the clients; None is none.
        separation: smallest number of rounds from one participation of a client to its next, as servers of phones enforce it;
            None sets no limit.

    Raises:
        ConfigurationError: if a piece is of another family, `separation` is below 2, `dropout` or `seconds_per_round` is
            without `speed`, or `seconds_per_round` contradicts the length of the pattern.

    Example:
        >>> import turnout as to
        >>> phones = to.Population(to.availability.Markov(mean=0.1), speed=to.speed.Speed(compute=to.delay.Uniform(1, 4)))
        >>> phones.availability.bind(num_clients=3).rates.tolist()
        [0.1, 0.1, 0.1]
    """

    availability: Availability = field(default_factory=Everyone)
    speed: SpeedModel | None = None
    dropout: Dropout | None = None
    seconds_per_round: Positive | None = None
    requirement: Requirement | None = None
    opting: Opting | None = None
    behavior: Attack | None = None
    separation: int | None = None

    def __post_init__(self) -> None:
        for name, (base, needed, example) in _PIECES.items():
            value = getattr(self, name)
            if not isinstance(value, base) and (value is not None or name == "availability"):
                hint = f": write {value.__name__}()" if isinstance(value, type) else f", such as {example}"
                raise ConfigurationError(f"{name}: got {value!r}, needed {needed}{hint}")
        if self.separation is not None:
            count("separation", self.separation, least=2, instead="A client may take part in every round without it")
        # A pattern that follows a clock has a length of rounds of its own, with which another one is compared below.
        for name in ("dropout", "seconds_per_round") if self.availability.round_seconds is None else ("dropout",):
            if getattr(self, name) is not None and self.speed is None:
                raise ConfigurationError(
                    f"{name} is about a clock, and without a speed there is none: write speed=... too"
                )
        one_round_length(self.availability, self.seconds_per_round)

    def of_clients(self, names: Sequence[str] | None) -> Population:
        """Return the population with numbers in place of names of clients in its tables.

        Raises:
            DataError: if a table names other clients.
        """
        pieces = {name: getattr(self, name) for name in ("availability", "speed", "requirement")}
        return replace(self, **{name: piece.of_clients(names) for name, piece in pieces.items() if piece is not None})

    @property
    def round_seconds(self) -> float | None:
        """Length of a round of availability on the clock in seconds; None where every server step begins a new round."""
        return None if self.speed is None else one_round_length(self.availability, self.seconds_per_round)


_PIECES: Mapping[str, tuple[type, str, str]] = {
    "availability": (Availability, "an availability", "Markov(mean=0.1)"),
    "speed": (SpeedModel, "a speed", "Speed(compute=delay.Uniform(1, 2))"),
    "dropout": (Dropout, "a dropout", "Dropout(probability=0.05)"),
    "requirement": (Requirement, "a requirement", "WarmUp(steps=100)"),
    "opting": (Opting, "a rule", "Opting(mandatory_rounds=10)"),
    "behavior": (Attack, "an attack", "Byzantine(fraction=0.1)"),
}
"""The base class of each piece, and its description and an example for messages."""
