"""Who the clients are, beside the data they hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnout.core.checks import ConfigurationError, positive
from turnout.population.availability.base import Availability, one_round_length
from turnout.population.availability.everyone import Everyone
from turnout.population.behaviour import Attack
from turnout.population.behaviour.dropout import Dropout
from turnout.population.behaviour.opting import Opting
from turnout.population.requirement import Requirement
from turnout.population.speed.durations import SpeedModel


@dataclass(frozen=True)
class Population:
    """Describe the clients of an experiment: when they are there, how fast they are, what they do.

    Attributes:
        availability: in which rounds each of them is there.
        speed: how long their tasks take; None is a federation without a clock.
        dropout: how often they drop out in the middle of a task; None is never.
        seconds_per_round: how long a round of `availability` lasts on the clock, whatever the server does in the meantime.
            None takes the availability's own length, if it has one (`Flash`, `TimedTrace`, `Diurnal`), and otherwise begins a
            new round of availability with every server step.
        requirement: what they require of a model, for whatever asks; None is ``WarmUp()``.
        opting: whether they leave where the model does not meet their requirement; None is not.
        behaviour: which of them do not do what they are asked to; None is none.

    Raises:
        ConfigurationError: for pieces of another kind, for a dropout or seconds_per_round without a speed, or for a
            seconds_per_round other than the availability's own.
    """

    availability: Availability = field(default_factory=Everyone)
    speed: SpeedModel | None = None
    dropout: Dropout | None = None
    seconds_per_round: float | None = None
    requirement: Requirement | None = None
    opting: Opting | None = None
    behaviour: Attack | None = None

    def __post_init__(self) -> None:
        _check("availability", self.availability, Availability, "an availability", "Markov(mean=0.1)")
        if self.speed is not None:
            _check("speed", self.speed, SpeedModel, "a speed", "Speed(compute=delay.Uniform(1, 2))")
        if self.dropout is not None:
            _check("dropout", self.dropout, Dropout, "a dropout", "Dropout(probability=0.05)")
        if self.requirement is not None:
            _check("requirement", self.requirement, Requirement, "a requirement", "WarmUp(steps=100)")
        if self.opting is not None:
            _check("opting", self.opting, Opting, "a rule", "Opting(mandatory_rounds=10)")
        if self.behaviour is not None:
            _check("behaviour", self.behaviour, Attack, "an attack", "Byzantine(fraction=0.1)")
        if self.seconds_per_round is not None:
            positive("seconds_per_round", self.seconds_per_round)
        for name in ("dropout", "seconds_per_round"):
            if getattr(self, name) is not None and self.speed is None:
                raise ConfigurationError(
                    f"{name} is about a clock, and without a speed there is none: write speed=... too"
                )
        one_round_length(self.availability, self.seconds_per_round)

    @property
    def round_seconds(self) -> float | None:
        """Seconds that a round of availability lasts on the clock; None where one begins with every server step."""
        return None if self.speed is None else one_round_length(self.availability, self.seconds_per_round)


def _check(name: str, value: object, kind: type, needed: str, example: str) -> None:
    """Refuse what is not an instance of `kind`."""
    if not isinstance(value, kind):
        hint = f": write {value.__name__}()" if isinstance(value, type) else f", such as {example}"
        raise ConfigurationError(f"{name}: got {value!r}, needed {needed}{hint}")
