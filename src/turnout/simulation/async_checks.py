"""What has a meaning where the clock decides who is in a server step, and from which version."""

from __future__ import annotations

from turnout.core.checks import ConfigurationError
from turnout.pieces.base import InformsClients
from turnout.pieces.base.algorithm import Algorithm
from turnout.pieces.selection import AllAvailable
from turnout.population import Population
from turnout.protocol.cohorts import enlarged_selection
from turnout.protocol.pace import Pace, Rounds


def by_the_clock(pace: Pace, population: Population) -> bool:
    """Return whether a run needs virtual time, rather than one whole cohort after the other."""
    return pace != Rounds() or population.dropout is not None


def check(pace: Pace, algorithm: Algorithm, population: Population) -> None:
    """Refuse what has no meaning by the clock.

    Raises:
        ConfigurationError: with the reason.
    """
    if population.speed is None:
        raise ConfigurationError(
            f"pace: {type(pace).__name__} goes by the clock, and the population has no speed, so nothing takes time: write "
            "Population(speed=Speed(compute=delay.Uniform(1, 2)))"
        )
    if not isinstance(pace, Rounds):
        _check_without_rounds(type(pace).__name__, algorithm)
    elif pace.over_selection != 1.0:
        enlarged_selection(algorithm.selection, pace.over_selection)
    if population.opting is not None:
        raise ConfigurationError(
            "opting: clients judge the model of every round, and by the clock there are no rounds: leave it out, or write "
            "Rounds() without deadline and dropout"
        )


def _check_without_rounds(name: str, algorithm: Algorithm) -> None:
    """Refuse what is about all clients at one version of the model, where a step may mix several."""
    selection = type(algorithm.selection).__name__
    if algorithm.selection.measurements:
        raise ConfigurationError(
            f"{selection} measures before it chooses, for which the server would have to wait for everyone: write "
            "also=(AllAvailable(),), or Rounds()"
        )
    if not isinstance(algorithm.selection, AllAvailable):
        raise ConfigurationError(
            f"{selection} chooses the cohort of a round, and with {name} the order of arrival decides who is in a step: "
            f"write also=(AllAvailable(),), and {name}(concurrency=...) for how many work at a time"
        )
    if algorithm.keeps:
        raise ConfigurationError(
            f"clients correct their steps by the server's mean of what they keep ({', '.join(algorithm.keeps)}) minus their "
            f"own; these cancel over all clients where the mean is of one version, and {name} may mix several: leave the "
            "correction out, or write Rounds()"
        )
    if told := [type(piece).__name__ for piece in algorithm.weighting if isinstance(piece, InformsClients)]:
        raise ConfigurationError(
            f"{told[0]} tells clients what depends on all reports so far, and by the clock some of those are still under way "
            "when a task is given: leave it out, or write Rounds()"
        )
