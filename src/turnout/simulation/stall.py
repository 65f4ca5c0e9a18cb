"""Detect runs that wait for clients in vain, or whose updates are all dropped."""

from __future__ import annotations

from turnout.configuration import Configuration
from turnout.core.checks import ConfigurationError, Diverged, counted
from turnout.protocol.pace import BoundPace
from turnout.protocol.secure.masking import Masking
from turnout.record.query import History

PATIENCE = 10_000
"""Rounds of availability without work after which a run ends."""


class Stall:
    """Count rounds of availability in which no client works, or in which a step waits for certain clients.

    Args:
        by_version: whether a round of availability starts with every server step, and has no duration.

    Attributes:
        idle_rounds: consecutive rounds of availability without work.
    """

    def __init__(self, by_version: bool) -> None:
        self.idle_rounds = 0
        self._by_version = by_version
        self._rounds_waited = 0

    def working(self) -> None:
        """Note that a client works."""
        self.idle_rounds = 0

    def stepped(self) -> None:
        """Note a server step."""
        self._rounds_waited = 0

    def idle(self, time: float) -> None:
        """Note a round of availability without work.

        Raises:
            ConfigurationError: if no client has worked for too many of them.
        """
        self.idle_rounds += 1
        if self.idle_rounds > PATIENCE:
            raise ConfigurationError(
                f"no client has worked for {PATIENCE} rounds of availability in a row, up to second {time:g}: "
                f"write another availability{'' if self._by_version else ' or longer rounds of it (seconds_per_round)'}, or "
                "end the run before"
            )

    def waited(self, pace: BoundPace) -> None:
        """Note a round of availability without a step.

        Raises:
            ConfigurationError: if the pace has waited too long for the reports of certain clients.
        """
        self._rounds_waited += 1
        if self._rounds_waited > PATIENCE and (missing := pace.waits_for):
            raise ConfigurationError(
                f"the first step needs a report of every client (starts_with_all), and {counted(len(missing), 'client')} "
                f"sent none for {PATIENCE} rounds of availability, client {missing[0]} among them: write "
                "starts_with_all=False, or an availability in which all clients become available"
            )


def check_participation(history: History, experiment: Configuration) -> None:
    """Check that a finished run trained at all.

    Args:
        history: tables of the run.
        experiment: its configuration.

    Raises:
        ConfigurationError: if no client took part in any round, so that the model is the initial one.
    """
    rounds = history.column("num_participants")[1]  # private runs may not publish it
    if len(rounds) and not rounds.any():
        name = type(experiment.population.availability).__name__
        masking: Masking | None = getattr(experiment.algorithm.aggregation, "masking", None)
        if masking is not None:
            raise ConfigurationError(
                f"0 of {counted(history.last_round, 'secure sum')} opened, there were too few clients, so the model is the "
                f"initial one: write a smaller min_clients than {masking.min_clients}, more clients, or another "
                f"availability than {name}"
            )
        raise ConfigurationError(
            f"no client took part in any of {counted(history.last_round, 'round')}, so the model is the initial one: write "
            f"more rounds, or another availability than {name} (`turnout data show NAME --availability` plots it)"
        )


MOST_STEPS_LOST = 5
"""The number of consecutive server steps without a usable update after which a run ends. Fewer can be chance, with a small
cohort of broken clients."""


def check_updates(lost: int, sent: int, dropped: int, version: int) -> int:
    """Count consecutive server steps all of whose updates were dropped.

    Args:
        lost: the number of such steps before this one.
        sent: the number of updates of this step; steps without updates are not counted.
        dropped: the number of updates that were dropped.
        version: the number of the step.

    Returns:
        The number of such steps, including this one.

    Raises:
        Diverged: if it reaches `MOST_STEPS_LOST`.
    """
    if not sent:
        return lost
    lost = lost + 1 if dropped >= sent else 0
    if lost >= MOST_STEPS_LOST:
        raise Diverged(
            f"all updates of the last {counted(lost, 'step')} with any, up to round {version}, were dropped, because they or "
            f"their sum hold NaN or infinity ({counted(dropped, 'update')} in that round): local training diverges. Write "
            "a smaller step size, such as Sgd(lr=0.01)"
        )
    return lost
